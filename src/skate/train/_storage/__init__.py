"""The persistent part of a run: its folder, its checkpoints, and its result."""
