"""The models that a replica has loaded: which to keep, and who is told."""
