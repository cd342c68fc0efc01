"""Types of Ray's experimental APIs."""

from skate.experimental.util import types

__all__ = ["types"]
