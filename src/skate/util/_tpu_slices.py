"""Placement groups for TPU slices."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from skate.util._tpu_topology import (
    check_topology,
    chips_in,
    chips_per_host,
    get_tpu_version_from_type,
    get_tpu_worker_resources,
    resource_per_chip,
)
from skate.util.placement_group import PlacementGroup, placement_group, remove_placement_group

__all__ = ["RESERVATION_TIMEOUT_S", "SlicePlacementGroup", "SubslicePlacementGroup"]

RESERVATION_TIMEOUT_S: Final = 100.0  # the default of Ray's parameter, which has no effect here


class SlicePlacementGroup:
    """A placement group on one or more single-host TPU slices.

    Args:
        topology: Topology of a slice, for example "2x4".
        accelerator_version: TPU version, for example "v6e".
        resources_per_bundle: Resources of a bundle; by default one CPU and all chips of the host.
        strategy: Strategy of the placement group.
        name: Name of the placement group.
        lifetime: Lifetime of the placement group.
        num_slices: The number of slices.
        chips_per_vm: Number of chips of a host, if it differs from the default of the topology.
        head_reservation_timeout_s: Accepted as in Ray; single-host slices need no reservation of a head.
        bundle_label_selector: Labels of eligible nodes, per bundle.
        pg_per_slice: Whether each slice gets its own placement group.
        tpu_resource_per_chip: Number of "TPU" resources per chip.

    Raises:
        ValueError: An argument is invalid.
        NotImplementedError: The slice spans several hosts.
    """

    def __init__(
        self,
        topology: str,
        accelerator_version: str,
        resources_per_bundle: dict[str, float] | None = None,
        strategy: str = "SPREAD",
        name: str = "",
        lifetime: str | None = None,
        num_slices: int = 1,
        chips_per_vm: int | None = None,
        head_reservation_timeout_s: float | None = RESERVATION_TIMEOUT_S,
        bundle_label_selector: list[dict[str, str]] | None = None,
        pg_per_slice: bool = False,
        tpu_resource_per_chip: int | None = None,
    ) -> None:
        self._topology = topology.strip().lower()
        self._version = get_tpu_version_from_type(accelerator_version.strip())
        self._num_slices = num_slices
        self._per_chip = resource_per_chip(tpu_resource_per_chip)
        self._num_bundles, self._bundle_resources = get_tpu_worker_resources(
            self._topology, self._version, resources_per_bundle, num_slices, chips_per_vm, self._per_chip
        )
        self._chips_per_host = chips_per_vm or chips_per_host(self._topology, self._version)
        check_topology(self._version, self._topology)
        _check_one_host(self._topology, self._version, self._chips_per_host)
        self._labels = list(bundle_label_selector or [{} for _ in range(self._num_bundles)])
        if len(self._labels) != self._num_bundles:
            raise ValueError(
                f"bundle_label_selector has {len(self._labels)} selectors for {self._num_bundles} bundles: give each "
                "bundle one, which may be {}."
            )
        self._pg_per_slice = pg_per_slice
        size = self._num_bundles // num_slices if pg_per_slice else self._num_bundles
        self._groups: list[PlacementGroup] = []
        for index, start in enumerate(range(0, self._num_bundles, size)):
            self._groups.append(
                placement_group(
                    [dict(self._bundle_resources) for _ in range(size)],
                    strategy,
                    f"{name}_slice_{index}" if name and pg_per_slice else name,
                    lifetime,
                    bundle_label_selector=self._labels[start : start + size],
                )
            )

    @property
    def placement_group(self) -> PlacementGroup | None:
        """The placement group; None after `shutdown`, and if each slice has its own."""
        return self._groups[0] if self._groups and not self._pg_per_slice else None

    @property
    def slice_placement_group(self) -> PlacementGroup | None:
        """Alias of `placement_group`."""
        return self.placement_group

    @property
    def slice_placement_groups(self) -> list[PlacementGroup]:
        """All placement groups: one per slice with `pg_per_slice`, else one."""
        return list(self._groups)

    @property
    def head_placement_groups(self) -> list[PlacementGroup]:
        """The reservations of heads; single-host slices have none."""
        return []

    @property
    def topology(self) -> str:
        """The topology of a slice."""
        return self._topology

    @property
    def accelerator_version(self) -> str:
        """The TPU version."""
        return self._version

    @property
    def num_slices(self) -> int:
        """The number of slices."""
        return self._num_slices

    @property
    def num_hosts(self) -> int:
        """The number of hosts of all slices: one per slice."""
        return self._num_slices

    @property
    def num_bundles(self) -> int:
        """The number of bundles of all slices."""
        return self._num_bundles

    @property
    def chips_per_host(self) -> int:
        """The number of chips of a host."""
        return self._chips_per_host

    @property
    def devices_per_host(self) -> int:
        """The number of "TPU" resources of a host."""
        return self._chips_per_host * self._per_chip

    @property
    def tpu_resource_per_chip(self) -> int:
        """The number of "TPU" resources per chip."""
        return self._per_chip

    @property
    def bundle_resources(self) -> dict[str, float]:
        """The resources of a bundle."""
        return self._bundle_resources

    @property
    def bundle_label_selector(self) -> list[dict[str, str]]:
        """The labels of eligible nodes, per bundle."""
        return self._labels

    def release_head_pgs(self, slice_index: int | None = None) -> None:
        """Release the reservations of heads; single-host slices have none."""
        if slice_index is not None:
            raise ValueError(
                f"Invalid slice_index: {slice_index}. Slices of one host have no head placement group."
            )

    def shutdown(self) -> None:
        """Remove the placement groups; further calls have no effect."""
        groups, self._groups = self._groups, []
        for group in groups:
            remove_placement_group(group)


def _check_one_host(topology: str, version: str, per_host: int) -> None:
    chips = chips_in(topology)
    if chips > per_host:
        raise NotImplementedError(
            f"A {version} slice of topology {topology!r} has {chips} chips on {math.ceil(chips / per_host)} hosts of "
            f"{per_host} chips, but Skate supports only single-host slices. Use a topology that fits one host, or "
            "a Ray cluster."
        )


@dataclass
class SubslicePlacementGroup:
    """A placement group on a part of a multi-host slice, as on a Ray cluster."""

    placement_group: PlacementGroup
    parent_topology: str
    subslice_topology: str
    subslice_index: int
    slice_name: str
    num_hosts: int
    chips_per_host: int
    bundle_resources: dict[str, float]
    head_placement_groups: list[PlacementGroup] = field(default_factory=list)
    bundle_label_selectors: list[dict[str, str]] = field(default_factory=list)

    @property
    def bundle_label_selector(self) -> list[dict[str, str]]:
        """The labels of eligible nodes, per bundle."""
        return self.bundle_label_selectors

    def release_head_pgs(self) -> None:
        """Release the reservations of heads; further calls have no effect."""
        groups, self.head_placement_groups = self.head_placement_groups, []
        for group in groups:
            remove_placement_group(group)

    def shutdown(self) -> None:
        """Remove the placement groups."""
        remove_placement_group(self.placement_group)
        self.release_head_pgs()
