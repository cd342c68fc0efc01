"""Replaces `ray.internal`, where older versions of Ray have `free`."""

from __future__ import annotations

from skate._api.objects import free

__all__ = ["free"]
