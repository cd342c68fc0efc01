"""Stands for `ray.internal`, which is empty in Ray too."""

__all__: list[str] = []
