"""The controller of a run: attempts to train, the run state that outlives them, and concurrent tasks."""
