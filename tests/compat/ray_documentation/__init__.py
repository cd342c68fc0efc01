"""Runs the examples of Ray's documentation on Skate: ``python -m tests.compat.ray_documentation --src RAY``."""
