"""Stands for `ray._common`."""
