"""Placement groups: resources reserved together, before the work that uses them starts.

`skate.util.placement_group` exports them; tasks and actors use this module.
"""

from __future__ import annotations

import logging
import time
import warnings
from typing import TYPE_CHECKING, Any

import skate
import skate._engine as engines
from skate._base import bundles as checks
from skate._base.errors import TaskUnschedulableError
from skate._base.ids import PlacementGroupID
from skate._base.options import ActorOptions, TaskOptions

if TYPE_CHECKING:
    from skate._base.object_ref import ObjectRef

__all__ = [
    "NODE_ID_LABEL_KEY",
    "VALID_PLACEMENT_GROUP_STRATEGIES",
    "PlacementGroup",
    "check_placement",
    "check_placement_group_index",
    "get_current_placement_group",
    "get_placement_group",
    "placement_group",
    "placement_group_table",
    "remove_placement_group",
    "validate_placement_group",
]

logger = logging.getLogger(__name__)

NODE_ID_LABEL_KEY = checks.NODE_LABEL
VALID_PLACEMENT_GROUP_STRATEGIES = frozenset(checks.STRATEGIES)


class PlacementGroup:
    """Refers to a placement group; two that refer to the same one are equal.

    Args:
        id: The group's id.
        bundle_cache: Its bundles, where they are known.
    """

    def __init__(self, id: PlacementGroupID, bundle_cache: list[dict[str, float]] | None = None) -> None:
        self.id = id
        self.bundle_cache = bundle_cache

    @staticmethod
    def empty() -> PlacementGroup:
        """Return the empty group."""
        return PlacementGroup(PlacementGroupID.nil())

    @property
    def is_empty(self) -> bool:
        """Whether this is the empty group."""
        return self.id.is_nil()

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        """The resources of each bundle."""
        if self.is_empty:
            return []
        if self.bundle_cache is None:
            bundles = placement_group_table(self).get("bundles", {})
            self.bundle_cache = [dict(bundles[index]) for index in sorted(bundles)]
        return self.bundle_cache

    @property
    def bundle_count(self) -> int:
        """The number of bundles."""
        return len(self.bundle_specs)

    def ready(self) -> ObjectRef[PlacementGroup]:
        """Return a reference that becomes this group once all its resources are reserved.

        Getting it raises `TaskPlacementGroupRemoved` when the group is removed.
        """
        return engines.current().placement_group_ready(self.id.binary(), self)

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Wait until the resources are reserved.

        Args:
            timeout_seconds: The most seconds to wait.

        Returns:
            Whether the resources are reserved. False after the time-out, with a warning, if no node has them.

        Raises:
            TaskPlacementGroupRemoved: The group was removed.
        """
        reference = self.ready()
        end = time.monotonic() + timeout_seconds
        ready, _ = skate.wait([reference], timeout=timeout_seconds)
        if not ready:
            return False
        try:
            skate.get(reference)
        except TaskUnschedulableError as error:
            logger.warning("%s", error)
            # Programs call this in a loop, which should not spin.
            time.sleep(max(0.0, end - time.monotonic()))
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id.hex()})"


def placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    name: str = "",
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> PlacementGroup:
    """Reserve resources for a group of tasks and actors.

    Args:
        bundles: The resources of each bundle; a task or an actor runs within one of them.
        strategy: "PACK" (the default), "SPREAD", "STRICT_PACK" or "STRICT_SPREAD" over nodes.
        name: A name for `get_placement_group`.
        lifetime: None to end with this driver, "detached" to stay until it is removed.
        _soft_target_node_id: The node that STRICT_PACK should prefer.
        bundle_label_selector: For each bundle, the labels of the nodes that may hold it.
        topology_strategy: A strategy for each topology label, instead of `strategy`.

    Returns:
        The group, before its resources are reserved: use `ready()` or `wait()` to wait for them.

    Raises:
        ValueError: An argument is wrong.
        RaySystemError: A placement group of this name exists.

    Examples:
        >>> import skate
        >>> from skate.util import placement_group
        >>> group = placement_group([{"CPU": 1}])
        >>> group.wait(10)
        True
    """
    if not isinstance(name, str):
        raise TypeError(f"The name of a placement group must be a string, but received type {type(name)}")
    chosen, wanted, selectors, lifetime = _checked(
        bundles, strategy, lifetime, _soft_target_node_id, bundle_label_selector, topology_strategy
    )
    if any("object_store_memory" in bundle for bundle in wanted):
        warnings.warn(
            "Setting 'object_store_memory' for bundles is deprecated: it reserves no memory. Leave it out; objects "
            "that do not fit into the object store are spilled to disk.",
            DeprecationWarning,
            stacklevel=2,
        )
    id = engines.current().create_placement_group(wanted, chosen, name, lifetime, selectors)
    return PlacementGroup(PlacementGroupID(id), wanted)


def validate_placement_group(
    bundles: list[dict[str, float]],
    strategy: str | None = None,
    lifetime: str | None = None,
    _soft_target_node_id: str | None = None,
    bundle_label_selector: list[dict[str, str]] | None = None,
    topology_strategy: dict[str, str] | None = None,
) -> bool:
    """Return True if `placement_group` accepts these arguments, else raise ValueError."""
    _checked(bundles, strategy, lifetime, _soft_target_node_id, bundle_label_selector, topology_strategy)
    return True


def _checked(
    bundles: Any, strategy: str | None, lifetime: Any, target: str | None, selectors: Any, topology: Any
) -> tuple[str, list[dict[str, float]], list[dict[str, str]], str | None]:
    chosen = checks.validate_strategy(strategy, topology)
    if target is not None and chosen != "STRICT_PACK":
        raise ValueError(
            f"_soft_target_node_id needs strategy='STRICT_PACK', and the strategy is {chosen!r}."
        )
    wanted = checks.validate_bundles(bundles)
    return (
        chosen,
        wanted,
        checks.validate_label_selectors(selectors, len(wanted)),
        checks.validate_lifetime(lifetime),
    )


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Release the resources of a group, and kill the work that runs in it.

    Removing a group twice does nothing.
    """
    engines.current().remove_placement_group(_id(placement_group))


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """Return the placement group of this name.

    Raises:
        ValueError: The name is empty, or no group has it.
    """
    if not placement_group_name:
        raise ValueError("get_placement_group() needs the name of a placement group, and got an empty one.")
    id = engines.current().find_placement_group(placement_group_name, None)
    if id is None:
        raise ValueError(
            f"Failed to look up placement group {placement_group_name!r}: no group of the namespace has this name."
        )
    return PlacementGroup(PlacementGroupID(id))


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """Return the state of one placement group, or of all of them by their id.

    The state of an unknown group is empty.
    """
    table = engines.current().placement_group_table()
    if placement_group is None:
        return table
    return table.get(_id(placement_group).hex(), {})


def get_current_placement_group() -> PlacementGroup | None:
    """Return the group that the calling task or actor runs in, or None."""
    id = engines.current().current_placement_group()
    return None if id is None else PlacementGroup(PlacementGroupID(id))


def check_placement_group_index(placement_group: PlacementGroup, bundle_index: int) -> None:
    """Raise ValueError unless the group has a bundle of this index; -1 is any of them."""
    count = None if placement_group.is_empty else placement_group.bundle_count
    checks.check_bundle_index(bundle_index, count)


def check_placement(name: str, options: TaskOptions | ActorOptions) -> None:
    """Raise ValueError if options place work in a placement group that is too small for it.

    Args:
        name: The name of the work, for the message.
        options: Options of a task or an actor.
    """
    strategy = options.scheduling_strategy
    if isinstance(getattr(strategy, "placement_group", None), PlacementGroup):
        group, index = strategy.placement_group, strategy.placement_group_bundle_index
    else:
        group, index = options.placement_group, options.effective_placement_group_bundle_index
    if not isinstance(group, PlacementGroup) or group.is_empty:
        checks.check_bundle_index(index, None)
        return
    check_placement_group_index(group, index)
    needed = options.placement_resources if isinstance(options, ActorOptions) else options.effective_resources
    checks.check_fits(name, needed, group.bundle_specs, index)


def _id(group: Any) -> bytes:
    if not isinstance(group, PlacementGroup):
        raise TypeError(f"expected a PlacementGroup, but received type {type(group)}")
    return group.id.binary()
