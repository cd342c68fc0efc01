"""Integrations with experiment trackers and frameworks."""

__all__: list[str] = []
