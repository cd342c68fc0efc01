"""TPUs: information about the chips of this machine, and placement groups for single-host slices.

The number of chips comes from device files, the name and type of the pod from environment variables that GKE sets
(``TPU_NAME``, ``TPU_ACCELERATOR_TYPE``, ``TPU_WORKER_HOSTNAMES``), and the slices from the labels and resources of the
nodes. Multi-host slices and subslices need a cluster and raise NotImplementedError.
"""

from __future__ import annotations

import glob
import importlib
import logging
import math
import os
import re
import warnings
from pathlib import Path
from typing import Any, Final

import skate
from skate.util._tpu_slices import RESERVATION_TIMEOUT_S, SlicePlacementGroup, SubslicePlacementGroup
from skate.util._tpu_topology import (
    check_topology,
    chips_in,
    cores_per_chip,
    get_tpu_num_slices_for_workers,
    get_tpu_version_from_type,
    get_tpu_worker_resources,
    pod_type,
    resource_per_chip,
)
from skate.util.placement_group import PlacementGroup
from skate.util.scheduling_strategies import PlacementGroupSchedulingStrategy

__all__ = [
    "SlicePlacementGroup",
    "SubslicePlacementGroup",
    "dispatch",
    "get_current_pod_name",
    "get_current_pod_worker_count",
    "get_num_ready_tpu_slices",
    "get_num_tpu_chips_on_node",
    "get_num_tpu_slices",
    "get_tpu_coordinator_env_vars",
    "get_tpu_nodes_for_slice",
    "get_tpu_num_slices_for_workers",
    "get_tpu_slice_name_from_node",
    "get_tpu_version_from_type",
    "get_tpu_worker_resources",
    "init_jax_profiler",
    "run_on_slice",
    "slice_placement_group",
    "subslice_placement_group",
]

_SLICE_NAME_LABEL: Final = "ray.io/tpu-slice-name"
_WORKER_ID_LABEL: Final = "ray.io/tpu-worker-id"
_POD_TYPE_LABEL: Final = "ray.io/tpu-pod-type"
_GOOGLE_PCI_VENDOR: Final = "0x1ae0"
_MEGASCALE_PORT: Final = "8081"
_JAX_PROFILER_PORT: Final = 9999

_log = logging.getLogger(__name__)


def get_current_pod_name() -> str | None:
    """Return the name of the TPU pod of this machine (``TPU_NAME``); None if there is none."""
    return os.environ.get("TPU_NAME") or None


def get_current_pod_worker_count() -> int | None:
    """Return the number of hosts in the TPU pod of this machine; None if there is none."""
    kind = re.fullmatch(r"(?:tpu-?)?v?(\d+[a-z]*)-(\d+)", os.environ.get("TPU_ACCELERATOR_TYPE", "").lower())
    chips = get_num_tpu_chips_on_node()
    if kind is not None and chips > 0:
        return math.ceil(int(kind[2]) / (chips * cores_per_chip(f"v{kind[1]}")))
    hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "")
    return len(hosts.split(",")) if hosts else None


def get_num_tpu_chips_on_node() -> int:
    """Return the number of TPU chips of this machine."""
    chips = [path for path in glob.glob("/dev/accel*") if not os.path.isdir(path)]
    if chips:
        return len(chips)
    return sum(_is_tpu_group(path) for path in Path("/dev/vfio").glob("*") if path.name.isdigit())


def _is_tpu_group(group: Path) -> bool:
    """Return whether a VFIO group holds a TPU: other devices also use VFIO."""
    vendors = Path("/sys/kernel/iommu_groups", group.name, "devices").glob("*/vendor")
    return any(vendor.read_text(encoding="ascii").strip().lower() == _GOOGLE_PCI_VENDOR for vendor in vendors)


def get_tpu_coordinator_env_vars(
    coordinator_address: str, num_slices: int, slice_id: int, coordinator_port: str = _MEGASCALE_PORT
) -> dict[str, str]:
    """Return the environment variables with which libtpu connects several slices.

    Args:
        coordinator_address: Host of the coordinator.
        num_slices: Number of slices.
        slice_id: Index of the slice that uses the variables.
        coordinator_port: Port of the coordinator.
    """
    return {
        "MEGASCALE_COORDINATOR_ADDRESS": coordinator_address,
        "MEGASCALE_PORT": coordinator_port,
        "MEGASCALE_NUM_SLICES": str(num_slices),
        "MEGASCALE_SLICE_ID": str(slice_id),
    }


def get_tpu_slice_name_from_node(node: dict[str, Any]) -> str | None:
    """Return the name of the TPU slice in the labels of a node of `skate.nodes()`; None if it has none."""
    name: str | None = (node.get("Labels") or {}).get(_SLICE_NAME_LABEL)
    return name


def get_tpu_nodes_for_slice(
    slice_name: str, nodes: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return the live nodes that are labelled with the name of a slice.

    Args:
        slice_name: Name of the slice.
        nodes: The candidate nodes; by default `skate.nodes()`, or none without a session.
    """
    if nodes is None:
        nodes = skate.nodes() if skate.is_initialized() else []
    return [node for node in nodes if node.get("Alive") and get_tpu_slice_name_from_node(node) == slice_name]


def get_num_tpu_slices(topology: str, accelerator_type: str, tpu_resource_per_chip: int | None = None) -> int:
    """Return the number of complete slices of a topology in the session, free or in use.

    Args:
        topology: Topology of a slice.
        accelerator_type: The TPU version or accelerator type.
        tpu_resource_per_chip: Number of "TPU" resources per chip.
    """
    return len(_complete_slices(topology, accelerator_type, tpu_resource_per_chip))


def get_num_ready_tpu_slices(
    topology: str, accelerator_type: str, tpu_resource_per_chip: int | None = None
) -> int:
    """Return the number of complete slices of a topology in the session with no chip in use.

    The session counts free resources over all nodes, so the result is the number of slices that the free chips could
    fill.

    Args:
        topology: Topology of a slice.
        accelerator_type: The TPU version or accelerator type.
        tpu_resource_per_chip: Number of "TPU" resources per chip.
    """
    slices = _complete_slices(topology, accelerator_type, tpu_resource_per_chip)
    if not slices:
        return 0
    free = skate.available_resources().get("TPU", 0)
    return min(len(slices), int(free // (chips_in(topology) * resource_per_chip(tpu_resource_per_chip))))


def _complete_slices(topology: str, accelerator_type: str, per_chip: int | None) -> list[str]:
    """Return the names of the slices whose chips and first worker are all in the session."""
    if not topology or not accelerator_type or not skate.is_initialized():
        return []
    wanted = pod_type(topology, get_tpu_version_from_type(accelerator_type))
    chips = chips_in(topology) * resource_per_chip(per_chip)
    found: dict[str, list[dict[str, Any]]] = {}
    for node in skate.nodes():
        if node.get("Alive") and (node.get("Labels") or {}).get(_POD_TYPE_LABEL) == wanted:
            is_whole = node["Resources"].get("TPU", 0) >= chips
            name = node["NodeID"] if is_whole else get_tpu_slice_name_from_node(node)
            if name is not None:
                found.setdefault(name, []).append(node)
    return [
        name
        for name, nodes in found.items()
        if sum(node["Resources"].get("TPU", 0) for node in nodes) == chips
        and (len(nodes) == 1 or any(node["Labels"].get(_WORKER_ID_LABEL) == "0" for node in nodes))
    ]


def slice_placement_group(
    topology: str,
    accelerator_version: str,
    resources_per_bundle: dict[str, float] | None = None,
    num_slices: int = 1,
    chips_per_vm: int | None = None,
    pg_per_slice: bool = False,
    tpu_resource_per_chip: int | None = None,
    **kwargs: Any,
) -> SlicePlacementGroup:
    """Reserve TPU slices without waiting, as `placement_group` does.

    Args:
        topology: Topology of a slice, for example "2x4".
        accelerator_version: TPU version, for example "v6e".
        resources_per_bundle: Resources of a bundle; by default one CPU and all chips of the host.
        num_slices: Number of slices.
        chips_per_vm: Number of chips of a host, if it differs from the default of the topology.
        pg_per_slice: Whether each slice gets its own placement group.
        tpu_resource_per_chip: Number of "TPU" resources per chip.
        **kwargs: Further arguments of `SlicePlacementGroup`.

    Raises:
        ValueError: An argument is invalid.
        NotImplementedError: The slice spans several hosts.
    """
    return SlicePlacementGroup(
        topology,
        accelerator_version,
        resources_per_bundle,
        num_slices=num_slices,
        chips_per_vm=chips_per_vm,
        pg_per_slice=pg_per_slice,
        tpu_resource_per_chip=tpu_resource_per_chip,
        **kwargs,
    )


def run_on_slice(
    fn: Any,
    *args: Any,
    topology: str | None = None,
    accelerator_version: str | None = None,
    tpu_slice: SlicePlacementGroup | None = None,
    slice_index: int | None = None,
    num_slices: int = 1,
    chips_per_vm: int | None = None,
    head_reservation_timeout_s: float | None = RESERVATION_TIMEOUT_S,
    pg_ready_timeout_s: float | None = None,
    **kwargs: Any,
) -> list[skate.ObjectRef[Any]]:
    """Run a remote function in every bundle of a TPU slice, once the slice is reserved.

    Args:
        fn: The remote function. It uses the chips of its bundle and no CPU.
        *args: Its arguments.
        topology: Topology of the slice to reserve.
        accelerator_version: TPU version of the slice to reserve.
        tpu_slice: A reserved slice to use instead. A new slice stays reserved until the session ends.
        slice_index: Index of the slice in `tpu_slice`, if each slice has its own placement group.
        num_slices: Number of slices to reserve.
        chips_per_vm: Number of chips of a host, if it differs from the default of the topology.
        head_reservation_timeout_s: Accepted as in Ray; single-host slices need no reservation of a head.
        pg_ready_timeout_s: Seconds to wait for the slice; None waits without limit.
        **kwargs: Keyword arguments of the function.

    Returns:
        One reference per bundle.

    Raises:
        TypeError: `fn` is not a remote function.
        ValueError: The arguments do not describe a usable slice.
        NotImplementedError: The slice spans several hosts.
        TimeoutError: The slice was not reserved in time.
    """
    if not hasattr(fn, "options"):
        raise TypeError(
            f"fn must be a remote function, got {type(fn).__name__!r}; decorate it with @skate.remote."
        )
    _check_slice_index(tpu_slice, slice_index)
    if tpu_slice is None:
        if topology is None or accelerator_version is None:
            raise ValueError(
                "topology and accelerator_version are required to reserve a slice: pass both, or a tpu_slice."
            )
        reserved = SlicePlacementGroup(
            topology, accelerator_version, num_slices=num_slices, chips_per_vm=chips_per_vm
        )
    else:
        reserved = tpu_slice
    groups = reserved.slice_placement_groups
    if not groups:
        raise ValueError("The provided tpu_slice has already been shut down. Reserve a new one.")
    if slice_index is not None:
        groups = [groups[slice_index]]
    try:
        _wait_until_ready(groups, pg_ready_timeout_s)
    except Exception:
        if tpu_slice is None:
            reserved.shutdown()
        raise
    return [
        fn.options(
            num_cpus=0,
            resources={"TPU": reserved.bundle_resources["TPU"]},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote(*args, **kwargs)
        for group in groups
        for index in range(group.bundle_count)
    ]


def _check_slice_index(tpu_slice: SlicePlacementGroup | None, index: int | None) -> None:
    if index is None:
        return
    if tpu_slice is None or not tpu_slice._pg_per_slice:
        raise ValueError(
            "slice_index can only be used with a tpu_slice that was created with pg_per_slice=True."
        )
    if not 0 <= index < tpu_slice.num_slices:
        raise ValueError(
            f"Invalid slice_index {index}: the slices have the indexes 0 to {tpu_slice.num_slices - 1}."
        )


def _wait_until_ready(groups: list[PlacementGroup], timeout: float | None) -> None:
    ready, late = skate.wait([group.ready() for group in groups], num_returns=len(groups), timeout=timeout)
    if late:
        raise TimeoutError(
            f"The TPU slice was not ready within {timeout} s. The session needs free TPU resources: see "
            "skate.available_resources()."
        )
    skate.get(ready)


def dispatch(*args: Any, **kwargs: Any) -> list[skate.ObjectRef[Any]]:
    """Alias of `run_on_slice`, under its older name."""
    warnings.warn("Use run_on_slice() instead of dispatch()", DeprecationWarning, stacklevel=2)
    return run_on_slice(*args, **kwargs)


def subslice_placement_group(
    subslice_topology: str,
    accelerator_version: str,
    chips_per_vm: int | None = None,
    resources_per_bundle: dict[str, float] | None = None,
    strategy: str = "STRICT_SPREAD",
    name: str = "",
    lifetime: str | None = None,
    head_reservation_timeout_s: float | None = RESERVATION_TIMEOUT_S,
    subslice_index: int | None = None,
) -> SubslicePlacementGroup:
    """Raise an error: subslices of multi-host slices do not exist on one machine.

    Raises:
        ValueError: The version does not support the topology.
        NotImplementedError: Otherwise.
    """
    check_topology(get_tpu_version_from_type(accelerator_version), subslice_topology)
    raise NotImplementedError(
        f"A subslice such as {subslice_topology!r} is a part of a multi-host slice, but Skate runs on "
        "one machine. Use slice_placement_group() with a topology that fits one host."
    )


def init_jax_profiler(port: int | None = None) -> None:
    """Start the profiler server of JAX in this process.

    Without JAX, or if the server does not start, log the reason and return, as in Ray.

    Args:
        port: Port of the server; by default ``JAX_PROFILER_PORT``, else 9999.
    """
    try:
        profiler = importlib.import_module("jax").profiler
    except ImportError:
        _log.warning("The profiler server needs JAX: pip install jax")
        return
    chosen = int(os.environ.get("JAX_PROFILER_PORT", _JAX_PROFILER_PORT)) if port is None else port
    try:
        profiler.start_server(chosen)
    except (RuntimeError, ValueError, OSError) as error:
        _log.error("The profiler server of JAX did not start on port %s: %s", chosen, error)
