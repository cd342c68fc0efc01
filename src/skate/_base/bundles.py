"""Validation of placement groups: their bundles, and whether work fits into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skate._base.labels import label_selector_problem

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
DEFAULT_STRATEGY = "PACK"
NODE_LABEL = "ray.io/node-id"
RESERVED_RESOURCE = "bundle"

_EXAMPLE = 'For example: `[{"CPU": 1.0}, {"GPU": 1.0}]`.'


def validate_bundles(bundles: Any) -> list[dict[str, float]]:
    """Return the bundles with float quantities, and without resources of quantity 0.

    Raises:
        ValueError: `bundles` is not a list of resource dictionaries, or a bundle is empty.
    """
    if not isinstance(bundles, list):
        raise ValueError(f"Placement group bundles must be a list, got {type(bundles)}: {bundles!r}.")
    if not bundles:
        raise ValueError(
            f"Bundles must be a non-empty list of resource dictionaries. {_EXAMPLE} Got empty list instead."
        )
    return [_validate_bundle(bundle, bundles) for bundle in bundles]


def _validate_bundle(bundle: Any, bundles: list[Any]) -> dict[str, float]:
    if not isinstance(bundle, dict) or not all(
        isinstance(name, str) and isinstance(quantity, (int, float)) for name, quantity in bundle.items()
    ):
        raise ValueError(
            f"Bundles must be a non-empty list of resource dictionaries. {_EXAMPLE} Got {bundle!r} in it."
        )
    if RESERVED_RESOURCE in bundle:
        raise ValueError(
            f"The resource name {RESERVED_RESOURCE!r} is reserved for placement groups: use another "
            f"name. Bundles: {bundles}"
        )
    for name, quantity in bundle.items():
        if not 0 <= quantity < float("inf"):
            raise ValueError(
                f"Bundles cannot hold a negative or infinite quantity, got {quantity} of {name!r}. "
                f"Bundles: {bundles}"
            )
    wanted = {name: float(quantity) for name, quantity in bundle.items() if quantity}
    if not wanted:
        raise ValueError(
            f"Bundles cannot be an empty dictionary or resources with only 0 values. Bundles: {bundles}"
        )
    return wanted


def validate_strategy(strategy: str | None, topology: Any = None) -> str:
    """Return the placement strategy from one of the two arguments that can set it."""
    if topology is None:
        chosen = DEFAULT_STRATEGY if strategy is None else strategy
        if chosen not in STRATEGIES:
            raise ValueError(
                f"Invalid placement group strategy {chosen}. Supported strategies are: {list(STRATEGIES)}."
            )
        return chosen
    if strategy is not None:
        raise ValueError("`strategy` and `topology_strategy` cannot both be given: leave one of them out.")
    return _validate_topology(topology)


def _validate_topology(topology: Any) -> str:
    if not isinstance(topology, dict):
        raise ValueError(f"`topology_strategy` must be a dict of label to strategy, got {type(topology)}.")
    others = []
    for label, strategy in topology.items():
        if not isinstance(label, str) or not label:
            raise ValueError(f"`topology_strategy` keys must be non-empty strings, got {label!r}.")
        if strategy not in STRATEGIES:
            raise ValueError(
                f"Invalid topology strategy {strategy!r} for {label!r}. "
                f"Supported strategies are: {list(STRATEGIES)}."
            )
        if label == NODE_LABEL:
            continue
        others.append(label)
        if strategy != "STRICT_PACK":
            raise ValueError(f"For label {label!r} only 'STRICT_PACK' is supported, got {strategy!r}.")
    if len(others) > 1:
        raise ValueError(f"`topology_strategy` takes at most one topology label besides the node's: {others}")
    node_strategy: str = topology.get(NODE_LABEL, DEFAULT_STRATEGY)
    return node_strategy


def validate_label_selectors(selectors: Any, bundle_count: int) -> list[dict[str, str]]:
    """Return one label selector per bundle; empty ones by default."""
    if selectors is None:
        return [{} for _ in range(bundle_count)]
    if not isinstance(selectors, list):
        raise ValueError(
            f"Placement group bundle label selector must be a list, got {type(selectors)}: {selectors!r}."
        )
    if len(selectors) != bundle_count:
        raise ValueError(
            f"Invalid bundle label selector {selectors}. The length of `bundle_label_selector` should equal "
            f"the length of `bundles`, which is {bundle_count}."
        )
    for selector in selectors:
        if not isinstance(selector, dict) or not all(
            isinstance(part, str) for pair in selector.items() for part in pair
        ):
            raise ValueError(
                "Bundle label selector must be a list of string dictionary label selectors. For example: "
                f'`[{{"ray.io/market-type": "spot"}}]`. Got {selector!r} in it.'
            )
        problem = label_selector_problem(selector)
        if problem:
            raise ValueError(
                f"Invalid label selector provided in bundle_label_selector list. Detailed error: '{problem}'"
            )
    return selectors


def validate_lifetime(lifetime: Any) -> str | None:
    """Return the lifetime of a placement group: None to end with its driver, or "detached"."""
    if lifetime is None or lifetime == "detached":
        return None if lifetime is None else "detached"
    raise ValueError(
        f"Placement group `lifetime` argument must be either `None` or 'detached'. Got {lifetime}."
    )


def check_bundle_index(index: int, bundle_count: int | None) -> None:
    """Raise ValueError unless `index` is -1 or the index of a bundle.

    Args:
        index: The requested index.
        bundle_count: The number of bundles of the group; None for no placement group.
    """
    if bundle_count is None:
        if index != -1:
            raise ValueError(
                f"If placement group is not set, the value of bundle index must be -1. Got {index}."
            )
    elif not -1 <= index < bundle_count:
        raise ValueError(
            f"placement group bundle index {index} is invalid. "
            f"Valid placement group indexes: 0-{bundle_count - 1}"
        )


def check_fits(
    name: str, resources: Mapping[str, float], bundles: Sequence[Mapping[str, float]], index: int = -1
) -> None:
    """Raise ValueError if work called `name` that needs `resources` fits into no usable bundle."""
    usable = bundles if index == -1 else [bundles[index]]
    if any(all(bundle.get(kind, 0.0) >= amount for kind, amount in resources.items()) for bundle in usable):
        return
    request = {kind: int(amount) if amount == int(amount) else amount for kind, amount in resources.items()}
    raise ValueError(
        f"Cannot schedule {name} with the placement group because the resource request {request} "
        f"cannot fit into any bundles for the placement group, {[dict(bundle) for bundle in usable]}."
    )
