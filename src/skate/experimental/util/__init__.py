"""Helpers of what Ray calls experimental."""

from skate.experimental.util import types

__all__ = ["types"]
