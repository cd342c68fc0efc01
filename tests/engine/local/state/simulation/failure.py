"""The error for a violated invariant of the state machine."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant of the state machine does not hold."""
