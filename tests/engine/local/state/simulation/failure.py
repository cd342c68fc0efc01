"""What is raised when the state machine breaks a promise."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant of the state machine does not hold."""
