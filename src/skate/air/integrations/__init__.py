"""Callbacks that tell other tools about a run: experiment trackers, and frameworks."""

__all__: list[str] = []
