"""Which device a worker trains on."""

from __future__ import annotations

import os

import torch

import skate
from skate.air import _worker_device
from skate.train._workers import sessions


def get_devices() -> list[torch.device]:
    """Return the devices that this worker has been given; the CPU if it has no GPU."""
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    mine = skate.get_runtime_context().get_accelerator_ids().get("GPU", [])
    if not mine:
        # A worker without a GPU leaves those that it sees to others; a process that is no worker has nobody beside
        # it, or those that a launcher has started with it.
        session = sessions.current("get_device()") if sessions.is_active() else None
        if session is not None and not session.is_local:
            return [torch.device("cpu")]
        return [torch.device("cuda", session.place.local_rank if session is not None else 0)]
    # The worker may see the GPUs of its neighbours too, so that they can copy to each other.
    visible = [each for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    return [torch.device("cuda", visible.index(str(each)) if str(each) in visible else 0) for each in mine]


def get_device() -> torch.device:
    """Return the device that this worker trains on: its first GPU, or the CPU.

    >>> get_device()
    device(type='cpu')
    """
    return get_devices()[0]


def use_device() -> torch.device:
    """Make this worker's GPU the current device of the calling thread, and return the worker's device."""
    device = get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    _worker_device.use(device)
    return device
