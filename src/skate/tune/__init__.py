"""Hyper-parameter search: trials of a trainable over a search space."""
