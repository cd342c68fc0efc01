"""Stands for `ray.data._internal.execution`."""
