"""What people look at: progress on the terminal, logs, event files, and a picture of the curves."""
