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
        raise ValueError(
            f"The bundles of a placement group must be a list. Got {bundles!r} ({type(bundles).__name__})."
        )
    if not bundles:
        raise ValueError(
            f"The bundles of a placement group must be a non-empty list, but it is empty. {_EXAMPLE}"
        )
    return [_validate_bundle(bundle, bundles) for bundle in bundles]


def _validate_bundle(bundle: Any, bundles: list[Any]) -> dict[str, float]:
    if not isinstance(bundle, dict) or not all(
        isinstance(name, str) and isinstance(quantity, (int, float)) for name, quantity in bundle.items()
    ):
        raise ValueError(
            "The bundles of a placement group must be a non-empty list of dictionaries from names of resources to "
            f"numbers, and {bundle!r} is not one. {_EXAMPLE}"
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
            f"A bundle reserves nothing if it is empty or has only 0 values: leave it out. Bundles: {bundles}"
        )
    return wanted


def validate_strategy(strategy: str | None, topology: Any = None) -> str:
    """Return the placement strategy from one of the two arguments that can set it."""
    if topology is None:
        chosen = DEFAULT_STRATEGY if strategy is None else strategy
        if chosen not in STRATEGIES:
            raise ValueError(
                f"Invalid placement group strategy {chosen!r}: use one of {', '.join(STRATEGIES)}."
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
            raise ValueError(
                f"The keys of `topology_strategy` are labels of nodes: keys must be non-empty strings, not {label!r}."
            )
        if strategy not in STRATEGIES:
            raise ValueError(
                f"Invalid topology strategy {strategy!r} for {label!r}. Use one of {', '.join(STRATEGIES)}."
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
            f"`bundle_label_selector` must be a list with a selector for each bundle. Got {selectors!r}."
        )
    if len(selectors) != bundle_count:
        raise ValueError(
            f"`bundle_label_selector` has {len(selectors)} selectors for {bundle_count} bundles: give each bundle one, "
            f"which may be {{}}. Got {selectors}."
        )
    for selector in selectors:
        if not isinstance(selector, dict) or not all(
            isinstance(part, str) for pair in selector.items() for part in pair
        ):
            raise ValueError(
                "`bundle_label_selector` must be a list of string dictionary selectors, from labels to values, such as "
                f'[{{"zone": "a"}}], and {selector!r} is not one.'
            )
        problem = label_selector_problem(selector)
        if problem:
            raise ValueError(f"Invalid label selector provided for a bundle, {selector!r}. {problem}")
    return selectors


def validate_lifetime(lifetime: Any) -> str | None:
    """Return the lifetime of a placement group: None to end with its driver, or "detached"."""
    if lifetime is None or lifetime == "detached":
        return None if lifetime is None else "detached"
    raise ValueError(
        f"The lifetime of a placement group is None, to end with its driver, or 'detached'; got {lifetime!r}."
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
                f"Bundle index {index} needs a placement group. Without one, the bundle index must be -1."
            )
    elif not -1 <= index < bundle_count:
        raise ValueError(
            f"The bundle index {index} is invalid: the placement group has the bundles 0 to {bundle_count - 1}, and -1 "
            "stands for any of them."
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
        f"Cannot schedule {name} with the placement group because the resource request {request} cannot fit into any "
        f"bundles for the placement group, {[dict(bundle) for bundle in usable]}. Make a bundle larger."
    )
