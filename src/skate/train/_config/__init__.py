"""The configuration of a run: its datasets, the validation of its checkpoints, and the arguments of trainers."""
