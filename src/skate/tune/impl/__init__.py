"""The configuration of an experiment."""
