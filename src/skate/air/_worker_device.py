"""The device that this process trains on: whoever trains says it, and datasets put their tensors there."""

from __future__ import annotations

from typing import Any

_device: Any = None


def use(device: Any) -> None:
    """Say what the device is, as a `torch.device`; None if nobody trains here any more."""
    global _device
    _device = device


def current() -> Any:
    """Return the device; None if nobody has said."""
    return _device
