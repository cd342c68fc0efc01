"""Arithmetic on TPU versions and topologies: chips, hosts and the resources of a worker.

A topology such as ``"2x2x1"`` is the number of chips along each axis. A slice is a set of connected chips on one or
more hosts.
"""

from __future__ import annotations

import math
import os
import re
from typing import Final

__all__ = [
    "check_topology",
    "chips_in",
    "chips_per_host",
    "cores_per_chip",
    "get_tpu_num_slices_for_workers",
    "get_tpu_version_from_type",
    "get_tpu_worker_resources",
    "pod_type",
    "resource_per_chip",
]

_VERSIONS: Final = ("v2", "v3", "v4", "v5p", "v5litepod", "v6e", "v7x")
_ONE_CORE: Final = ("v5litepod", "v6e")  # one core per chip; the other versions have two
_WIDE_HOSTS: Final = ("v5litepod", "v6e")  # versions with hosts of up to eight chips
_WIDE_HOST_TOPOLOGIES: Final = ("1x1", "2x2", "2x4")
_CHIPS_PER_HOST: Final = 4
_RESOURCE_PER_CHIP: Final = "RAY_TPU_RESOURCE_PER_CHIP"

_SMALL_CUBES: Final = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
_SQUARES: Final = ("4x4", "4x8", "8x8", "8x16", "16x16")
_TOPOLOGIES: Final = {
    "v2": _SQUARES,
    "v3": (*_SQUARES, "16x32", "32x32"),
    "v4": _SMALL_CUBES,
    "v5p": _SMALL_CUBES,
    "v5litepod": ("1x1", "2x2", "2x4", "2x8", *_SQUARES),
    "v6e": ("1x1", "2x2", "2x4", "2x8", *_SQUARES),
    "v7x": (*_SMALL_CUBES, "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16"),
}
# These versions also support topologies whose axes are multiples of four, up to these lengths.
_LARGEST_CUBES: Final = {"v4": (12, 12, 16), "v5p": (16, 16, 24)}


def get_tpu_version_from_type(accelerator_type: str) -> str:
    """Return the TPU version of an accelerator type.

    Args:
        accelerator_type: For example "TPU-V6E", "tpu7x" or "v6e".

    Raises:
        ValueError: The version is unknown.

    Example:
        >>> get_tpu_version_from_type("TPU-V6E")
        'v6e'
    """
    lowered = accelerator_type.lower()
    version = lowered.removeprefix("tpu-") if lowered.startswith("tpu-") else re.sub("^tpu", "v", lowered)
    if version not in _VERSIONS:
        raise ValueError(
            f"Invalid accelerator_type: {accelerator_type}. Use one of {', '.join(_VERSIONS)}, with or without 'TPU-'."
        )
    return version


def chips_in(topology: str) -> int:
    """Return the number of chips of a topology.

    Raises:
        ValueError: The string is not a topology.

    Example:
        >>> chips_in("2x2x4")
        16
    """
    return math.prod(_axes(topology))


def _axes(topology: str) -> tuple[int, ...]:
    text = topology.strip().lower()
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise ValueError(f"A TPU topology has the form '2x4' or '2x2x1', got {topology!r}.")
    return tuple(map(int, text.split("x")))


def check_topology(version: str, topology: str) -> None:
    """Raise ValueError unless the version supports the topology."""
    axes = _axes(topology)
    largest = _LARGEST_CUBES.get(version, ())
    is_large = len(axes) == len(largest) and all(
        axis % 4 == 0 and axis <= most for axis, most in zip(axes, largest, strict=True)
    )
    if topology.strip().lower() not in _TOPOLOGIES[version] and not is_large:
        known = ", ".join(_TOPOLOGIES[version])
        more = f", and multiples of 4 up to {'x'.join(map(str, largest))}" if largest else ""
        raise ValueError(
            f"TPUs of version {version!r} have no topology {topology!r}. They have {known}{more}."
        )


def chips_per_host(topology: str, version: str) -> int:
    """Return the default number of chips of a slice per host.

    Example:
        >>> chips_per_host("2x4", "v6e"), chips_per_host("4x4", "v6e"), chips_per_host("2x2x1", "v4")
        (8, 4, 4)
    """
    if version in _WIDE_HOSTS and topology.strip().lower() in _WIDE_HOST_TOPOLOGIES:
        return chips_in(topology)
    return _CHIPS_PER_HOST


def cores_per_chip(version: str) -> int:
    """Return the number of cores per chip of this version."""
    return 1 if version in _ONE_CORE else 2


def pod_type(topology: str, version: str) -> str:
    """Return the pod type of a slice: version and number of cores.

    Example:
        >>> pod_type("2x2x1", "v4"), pod_type("2x4", "v6e")
        ('v4-8', 'v6e-8')
    """
    return f"{version}-{chips_in(topology) * cores_per_chip(version)}"


def resource_per_chip(given: int | None = None) -> int:
    """Return the number of "TPU" resources per chip: `given`, else RAY_TPU_RESOURCE_PER_CHIP, else 1.

    Raises:
        ValueError: The number is not a positive integer.
    """
    if given is not None:
        if given <= 0:
            raise ValueError(f"`tpu_resource_per_chip` must be a positive integer, got {given!r}.")
        return given
    text = os.environ.get(_RESOURCE_PER_CHIP, "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{_RESOURCE_PER_CHIP} must be a positive integer, got {text!r}.")
    return int(text)


def get_tpu_worker_resources(
    topology: str,
    accelerator_type: str,
    resources_per_worker: dict[str, float] | None = None,
    num_slices: int = 1,
    chips_per_vm: int | None = None,
    tpu_resource_per_chip: int | None = None,
) -> tuple[int, dict[str, float]]:
    """Return the number of workers that fill the slices, and the resources of each.

    Args:
        topology: Topology of a slice.
        accelerator_type: The TPU version or accelerator type.
        resources_per_worker: Resources of a worker; by default one CPU and the chips of one host.
        num_slices: The number of slices.
        chips_per_vm: Number of chips of a host, if it differs from the default of the topology.
        tpu_resource_per_chip: Number of "TPU" resources per chip.

    Raises:
        ValueError: The workers do not fill the slices evenly, or an argument is invalid.

    Example:
        >>> get_tpu_worker_resources("4x4", "v6e")
        (4, {'CPU': 1, 'TPU': 4})
    """
    per_chip = resource_per_chip(tpu_resource_per_chip)
    version = get_tpu_version_from_type(accelerator_type)
    per_host = chips_per_vm if chips_per_vm is not None else chips_per_host(topology, version)
    if per_host <= 0:
        raise ValueError(f"chips_per_vm must be positive, got {per_host}.")
    in_slice = chips_in(topology) * per_chip
    resources: dict[str, float] = {**(resources_per_worker or {})}
    resources.setdefault("CPU", 1)
    resources.setdefault("TPU", per_host * per_chip)
    per_worker = resources["TPU"]
    if per_worker <= 0:
        raise ValueError(f"TPU resources must be positive, got {per_worker}.")
    if in_slice % per_worker != 0:
        raise ValueError(
            f"A slice of topology {topology!r} has {in_slice} TPU resources, which workers with {per_worker} each do "
            "not fill evenly. Use a divisor of that number per worker."
        )
    return int(in_slice * num_slices // per_worker), resources


def get_tpu_num_slices_for_workers(
    topology: str,
    accelerator_type: str,
    num_workers: int,
    resources_per_worker: dict[str, float] | None = None,
    tpu_resource_per_chip: int | None = None,
) -> int:
    """Return the number of slices for this many workers; 1 if the arguments do not describe a slice.

    Args:
        topology: Topology of a slice.
        accelerator_type: The TPU version or accelerator type.
        num_workers: Number of workers.
        resources_per_worker: Resources of a worker; by default one CPU and the chips of one host.
        tpu_resource_per_chip: Number of "TPU" resources per chip.

    Example:
        >>> get_tpu_num_slices_for_workers("4x4", "v6e", num_workers=6)
        2
    """
    if not topology or not accelerator_type:
        return 1
    try:
        per_slice, _ = get_tpu_worker_resources(
            topology, accelerator_type, resources_per_worker, tpu_resource_per_chip=tpu_resource_per_chip
        )
    except ValueError:
        return 1  # as in Ray: callers pass partial settings for one slice
    return max(1, math.ceil(num_workers / per_slice))
