"""Whether a module is being imported: the one moment at which an interrupt breaks a process that lives on."""

from __future__ import annotations

import importlib
from types import CodeType, FrameType

# Seconds that an interrupt waits for an import at most: NumPy cannot be imported again after half of an import.
PATIENCE = 30.0
AGAIN = 0.001  # seconds until the next try

_imports: CodeType = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]


def is_importing(frame: FrameType | None) -> bool:
    """Return whether what runs in a frame is part of an import."""
    while frame is not None:
        if frame.f_code is _imports:
            return True
        frame = frame.f_back
    return False
