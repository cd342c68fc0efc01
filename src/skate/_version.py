"""Versions: Skate's own, and that of the Ray API which it follows."""

__version__ = "0.1.0"
ray_version = "2.60.0"
