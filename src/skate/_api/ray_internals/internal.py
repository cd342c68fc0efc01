"""Stands for `ray.internal`, where older versions of Ray had `free`."""

from skate._api.objects import free

__all__ = ["free"]
