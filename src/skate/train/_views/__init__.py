"""The outputs of a run for people: progress on the terminal, logs, event files, and plots of the metrics."""
