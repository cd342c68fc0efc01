"""The resources of this machine that this process may use: CPUs, GPUs, memory."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import NamedTuple

from skate._base import variables
from skate._base.accelerators import DEVICE_VARIABLES, ONLY_TYPES
from skate._base.memory import total as memory
from skate._base.processors import cpus

OBJECT_STORE_SHARE = 0.3  # of memory
SHARED_MEMORY_SHARE = (
    0.95  # of the free space in the file system of shared memory, which other programs use too
)
LITTLE_SHARED_MEMORY = 256 << 20


class StoreBudget(NamedTuple):
    """The bytes that objects may use in shared memory."""

    size: int
    warning: str = ""  # why it is smaller than requested, and the remedy


def store_budget(shm: str, asked: int | None) -> StoreBudget:
    """Return the budget of objects in a folder for shared memory: `asked`, or a share of memory, as far as it is free.

    Objects that do not fit are kept on disk.

    Raises:
        ValueError: A variable that sets the share, or its upper limit, is invalid.
    """
    wanted = asked or _default_store_size()
    free = free_space(shm)
    if wanted <= free * SHARED_MEMORY_SHARE:
        return StoreBudget(wanted)
    available = int(free * SHARED_MEMORY_SHARE)
    if asked is None and available >= LITTLE_SHARED_MEMORY:
        return StoreBudget(available)
    return StoreBudget(
        available,
        f"The object store has {available / 1e6:,.1f} MB instead of {wanted / 1e6:,.1f} MB, because {shm} has only "
        f"{free / 1e6:,.1f} MB free. Objects that do not fit are kept on disk, which is slower. {MORE_SHARED_MEMORY}",
    )


def _default_store_size() -> int:
    share = variables.number(
        "DEFAULT_OBJECT_STORE_MEMORY_PROPORTION", OBJECT_STORE_SHARE, at_least=0.001, at_most=1
    )
    size = int(memory() * share)
    return min(size, variables.integer("DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", size, at_least=1))


MORE_SHARED_MEMORY = (
    "In a container, give it more with `docker run --shm-size=...`; elsewhere, name a larger folder in "
    "SKATE_SHMDIR."
)


def free_space(folder: str) -> float:
    """Return the free bytes of a folder's file system, infinity if it has no limit."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize if status.f_blocks else math.inf


def gpus() -> list[str]:
    """Return the ids of the NVIDIA GPUs that this process may use, without initializing CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [
            device.strip() for device in visible.split(",") if device.strip() not in ("", "-1", "NoDevFiles")
        ]
    try:
        return [str(index) for index in range(len(os.listdir("/proc/driver/nvidia/gpus")))]
    except OSError:
        return []


def accelerator_type() -> str | None:
    """Return the name of the first GPU in Ray's spelling, such as A100 or H200."""
    import re

    try:
        first = min(os.listdir("/proc/driver/nvidia/gpus"))
    except (OSError, ValueError):
        return None
    text = _read(f"/proc/driver/nvidia/gpus/{first}/information") or ""
    found = re.search(r"Model:\s*(?:NVIDIA\s+)?(?:Tesla\s+|GeForce\s+)?([A-Z0-9-]+)", text)
    return found.group(1).split("-")[0] if found else None


def resources(
    num_cpus: float | None, num_gpus: float | None, custom: dict[str, float] | None, own_memory: float | None
) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Return the node's resources and the ids of its numbered devices."""
    total: dict[str, float] = {"CPU": float(cpus() if num_cpus is None else num_cpus)}
    devices: dict[str, list[str]] = {}
    found = gpus()
    count = len(found) if num_gpus is None else int(num_gpus)
    if count:
        names = found[:count] if len(found) >= count else [str(index) for index in range(count)]
        total["GPU"] = float(count)
        devices["GPU"] = names
        kind = accelerator_type() if found else None
        if kind:
            total[f"accelerator_type:{kind}"] = 1.0
    total["memory"] = float(own_memory if own_memory is not None else int(memory() * 0.7))
    total["node:127.0.0.1"] = 1.0
    total["node:__internal_head__"] = 1.0
    for name, amount in (custom or {}).items():
        total[name] = float(amount)
        if name in DEVICE_VARIABLES:
            devices[name] = [str(index) for index in range(int(amount))]
        if name in ONLY_TYPES and amount:
            total[f"accelerator_type:{ONLY_TYPES[name]}"] = 1.0
    return {name: amount for name, amount in total.items() if amount or name == "CPU"}, devices


def node_labels(given: Mapping[str, str] | None, total: Mapping[str, float]) -> dict[str, str]:
    """Return the labels of the node: the given ones, and those that Ray derives from the machine and its variables.

    Args:
        given: Labels that the user has given, which take precedence.
        total: The resources of the node.
    """
    found = {
        "market-type": variables.text("NODE_MARKET_TYPE"),
        "node-group": variables.text("NODE_TYPE_NAME"),
        "availability-region": variables.text("NODE_REGION"),
        "availability-zone": variables.text("NODE_ZONE"),
        "accelerator-type": _accelerator_label(total),
    }
    return {**{f"ray.io/{name}": value for name, value in found.items() if value}, **(given or {})}


def _accelerator_label(total: Mapping[str, float]) -> str | None:
    # As on a TPU virtual machine of Google, where the variable is `v4-16` or similar.
    generation = os.environ.get("TPU_ACCELERATOR_TYPE", "").partition("-")[0]
    if "TPU" in total and generation:
        return f"TPU-{generation.upper()}"
    prefix = "accelerator_type:"
    return next((name.removeprefix(prefix) for name in total if name.startswith(prefix)), None)


def _read(path: str) -> str | None:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None
