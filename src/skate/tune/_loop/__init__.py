"""The loop that runs the trials of an experiment."""
