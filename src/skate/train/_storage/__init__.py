"""What is kept of a run: its folder, its checkpoints, and the result that is read from there."""
