"""Validation of replicas' actor options, placement groups and limits per node."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import skate
from skate.actor import ActorClass
from skate.air import _arguments as arguments
from skate.air._arguments import hint_for_unknown
from skate.serve._config import defaults
from skate.util.placement_group import validate_placement_group

ACTOR_OPTIONS = frozenset(
    {
        "accelerator_type",
        "fallback_strategy",
        "label_selector",
        "memory",
        "num_cpus",
        "num_gpus",
        "resources",
        "runtime_env",
    }
)
# Actor options that Serve sets itself, and what to use instead.
_MANAGED_BY_SERVE = {
    "concurrency_groups": "max_ongoing_requests bounds what a replica does at a time",
    "get_if_exists": "Serve names its replicas",
    "lifetime": "replicas live as long as their deployment",
    "max_concurrency": "use max_ongoing_requests of the deployment",
    "max_pending_calls": "use max_queued_requests of the deployment",
    "max_restarts": "Serve replaces replicas that die",
    "max_task_retries": "Serve retries requests",
    "name": "use the name of the deployment",
    "namespace": "Serve names its replicas",
    "placement_group": "use placement_group_bundles of the deployment",
    "placement_group_bundle_index": "use placement_group_bundles of the deployment",
    "placement_group_capture_child_tasks": "use placement_group_bundles of the deployment",
    "scheduling_strategy": "use placement_group_bundles or max_replicas_per_node of the deployment",
}


@functools.cache
def placeholder_actor_class() -> ActorClass[Any]:
    """Return an actor class for the validation of actor options."""

    class Replica:
        pass

    return skate.remote(Replica)


def validate_actor_options(options: Any) -> dict[str, Any]:
    """Return the options of a replica's actor; `num_cpus` defaults to 1.

    Raises:
        TypeError: If the options are not a dictionary, or a value has the wrong type.
        ValueError: If an option does not exist, is set by Serve, or has an invalid value.
    """
    if options is None:
        options = {}
    if hasattr(options, "model_dump"):
        options = options.model_dump(exclude_unset=True)
    if not isinstance(options, Mapping):
        arguments.refuse("ray_actor_options", "a dictionary", options)
    for name in options:
        if name not in ACTOR_OPTIONS:
            reason = (
                f"{_MANAGED_BY_SERVE[name]}."
                if name in _MANAGED_BY_SERVE
                else hint_for_unknown(str(name), ACTOR_OPTIONS)
            )
            raise ValueError(
                f"Specifying {name!r} in ray_actor_options is not allowed: {reason} Allowed options: "
                f"{', '.join(sorted(ACTOR_OPTIONS))}."
            )
    checked = {name: value for name, value in options.items() if value is not None}
    checked.setdefault("num_cpus", defaults.REPLICA_NUM_CPUS)
    with arguments.naming("ray_actor_options"):
        placeholder_actor_class().options(**checked)  # validates the values
    return checked


def check_placement(
    actor_options: Mapping[str, Any],
    bundles: Sequence[Mapping[str, float]] | None,
    strategy: str | None,
    selectors: list[dict[str, str]] | None,
) -> list[dict[str, str]] | None:
    """Validate the placement group of a replica; return a label selector for each bundle."""
    if bundles is None:
        if strategy is not None:
            raise ValueError(
                f"placement_group_strategy={strategy!r} needs a placement group: `placement_group_bundles` must also "
                "be provided."
            )
        if selectors is not None:
            raise ValueError(
                "placement_group_bundle_label_selector needs a placement group: `placement_group_bundles` must also be "
                "provided."
            )
        return None
    must = "a list of dictionaries of resources, such as [{'CPU': 1}]"
    arguments.instance("placement_group_bundles", bundles, (list, tuple), must)
    for bundle in bundles:
        arguments.instance("placement_group_bundles", bundle, Mapping, must)
    arguments.instance("placement_group_strategy", strategy, str, "a string", optional=True)
    selectors_must = "a list of dictionaries of labels"
    arguments.instance(
        "placement_group_bundle_label_selector", selectors, (list, tuple), selectors_must, optional=True
    )
    if selectors is not None and len(selectors) == 1:
        selectors = [dict(selectors[0]) for _ in bundles]
    with arguments.naming("placement_group_bundles"):
        validate_placement_group(
            list(map(dict, bundles)), strategy or "PACK", bundle_label_selector=selectors
        )
    _check_first_bundle(actor_options, bundles[0])
    return selectors


def _check_first_bundle(actor_options: Mapping[str, Any], bundle: Mapping[str, float]) -> None:
    asked = {
        ("num_cpus", "CPU"): actor_options.get("num_cpus", 0),
        ("num_gpus", "GPU"): actor_options.get("num_gpus", 0),
        **{(name, name): amount for name, amount in (actor_options.get("resources") or {}).items()},
    }
    for (option, resource), amount in asked.items():
        held = bundle.get(resource, 0)
        if amount > held:
            raise ValueError(
                f"A replica runs in the first bundle of its placement group, which has {held} {resource!r}, but it "
                f"needs {option}={amount}. Raise placement_group_bundles[0][{resource!r}], or lower "
                f"ray_actor_options[{option!r}]."
            )


def check_max_replicas_per_node(limit: Any) -> None:
    """Raise unless `limit` is a valid `max_replicas_per_node`."""
    if limit is None:
        return
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(
            f"max_replicas_per_node must be an integer or None, not {limit!r} ({type(limit).__name__})."
        )
    if not 1 <= limit <= defaults.MAX_REPLICAS_PER_NODE_LIMIT:
        raise ValueError(
            f"max_replicas_per_node must be from 1 to {defaults.MAX_REPLICAS_PER_NODE_LIMIT}, or None for no limit, "
            f"not {limit}."
        )
