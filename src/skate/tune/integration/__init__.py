"""Callbacks of training libraries that report to Tune."""
