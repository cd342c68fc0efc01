"""Errors of training functions, under Ray's path."""

from skate.train._failures.errors import SessionMisuseError

__all__ = ["SessionMisuseError"]
