"""The device that this process trains on: training sets it, and datasets move their tensors there."""

from __future__ import annotations

from typing import Any

_device: Any = None


def use(device: Any) -> None:
    """Set the device, as a `torch.device`; None when the training has ended."""
    global _device
    _device = device


def current() -> Any:
    """Return the device; None if it is not set."""
    return _device
