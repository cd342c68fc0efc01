"""The Lightning that is installed: `lightning`, or the older package of the same people, `pytorch_lightning`."""

from __future__ import annotations

import importlib.util
from typing import Any

from skate.air import _optional


def _installed() -> str:
    """Return the name of the module; `lightning` also if neither is there."""
    older = importlib.util.find_spec("lightning") is None and importlib.util.find_spec("pytorch_lightning")
    return "pytorch_lightning" if older else "lightning.pytorch"


NAME = _installed()
pl: Any = _optional.load(NAME, "skate.train.lightning")


def part(name: str) -> Any:
    """Return a module of it: `part("strategies")`."""
    return _optional.load(f"{NAME}.{name}", "skate.train.lightning")
