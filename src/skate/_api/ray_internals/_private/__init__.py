"""Stands for `ray._private`."""
