"""Autoscaling decisions: pure functions of measurements and time."""
