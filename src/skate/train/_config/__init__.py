"""How a run is set up: its workers, its datasets, the validation of its checkpoints."""
