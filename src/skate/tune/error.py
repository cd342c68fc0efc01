"""Errors of Tune."""

from __future__ import annotations

from skate.exceptions import RayError

__all__ = ["TuneError"]


class TuneError(RayError):
    """An experiment cannot run, or has failed."""
