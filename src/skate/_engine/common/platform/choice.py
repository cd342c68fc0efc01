"""Choosing the platform layer: that of Linux on Linux, and the portable one elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skate._engine.common.platform.interface import Platform

VARIABLE = "SKATE_PLATFORM"


def choose(name: str) -> Platform:
    """Return a platform layer by its name, the usual one of this system for "".

    Raises:
        ValueError: There is no such layer, or it does not run here.
    """
    is_linux = sys.platform == "linux"
    if name == "portable" or not (name or is_linux):
        from skate._engine.common.platform import portable

        return portable
    if name in ("", "linux") and is_linux:
        from skate._engine.common.platform import linux

        return linux
    known = "linux or portable" if is_linux else "portable"
    raise ValueError(f"{VARIABLE} is {name!r}: set it to {known}.")


system = choose(os.environ.get(VARIABLE, ""))
