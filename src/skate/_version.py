"""The versions of Skate and of Ray's API that it implements."""

__version__ = "0.1.0"
ray_version = "2.60.0"
