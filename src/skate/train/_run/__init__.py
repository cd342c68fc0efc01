"""Whoever drives a run: attempts to train, one journal for all of them, and what goes on beside the training."""
