"""The device of a worker."""

from __future__ import annotations

import os

import torch

import skate
from skate.air import _worker_device
from skate.train._workers import sessions


def get_devices() -> list[torch.device]:
    """Return the devices of this worker: its GPUs, or the CPU if it has none."""
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    mine = skate.get_runtime_context().get_accelerator_ids().get("GPU", [])
    if not mine:
        # A worker without a GPU must not use visible GPUs of others. A process that is no worker has the GPUs to
        # itself, or shares them by local rank with the other processes of a launcher.
        session = sessions.current("get_device()") if sessions.is_active() else None
        if session is not None and not session.is_local:
            return [torch.device("cpu")]
        return [torch.device("cuda", session.ranks.local_rank if session is not None else 0)]
    # The GPUs of all workers on the node may be visible, for copies between them.
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
