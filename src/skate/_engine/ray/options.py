"""Translation of the user's options: Ray's objects replace Skate's."""

from __future__ import annotations

from typing import Any

from skate._base.alias import real_ray
from skate._engine.ray.failures import RetryableFailure


def translated_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `ray.remote` for the user's options."""
    options = dict(given)
    retry = options.get("retry_exceptions")
    if isinstance(retry, (list, tuple)):
        options["retry_exceptions"] = [RetryableFailure]  # the worker checks the exception
    if options.get("scheduling_strategy") is not None:
        options["scheduling_strategy"] = strategy(options["scheduling_strategy"])
    group = options.get("placement_group")
    if group is not None and group != "default":
        options["placement_group"] = placement_group(group)
    if options.get("runtime_env") is not None:
        options["runtime_env"] = environment(options["runtime_env"])
    return options


def placement_group(group: Any) -> Any:
    """Return Ray's placement group for one of Skate's."""
    return group_of(group.id.binary(), group.bundle_specs if not group.is_empty else None)


def group_of(id: bytes, bundles: list[dict[str, float]] | None = None) -> Any:
    """Return Ray's placement group with this id."""
    theirs = real_ray("ray.util.placement_group")
    return theirs.PlacementGroup(real_ray().PlacementGroupID(id), bundles)


def strategy(ours: Any) -> Any:
    """Return Ray's scheduling strategy for one of Skate's; names are the same in both."""
    if isinstance(ours, str):
        return ours
    theirs = real_ray("ray.util.scheduling_strategies")
    fields = dict(vars(ours))
    name = type(ours).__name__
    if name == "PlacementGroupSchedulingStrategy":
        group = fields["placement_group"]
        fields["placement_group"] = None if group is None else placement_group(group)
    elif name == "NodeLabelSchedulingStrategy":
        fields = {kind: _conditions(fields[kind], theirs) for kind in ("hard", "soft") if fields[kind]}
        fields.setdefault("hard", {})
    else:
        fields = {key: value for key, value in fields.items() if not key.startswith("_") or value}
    return getattr(theirs, name)(**fields)


def _conditions(expressions: list[Any], theirs: Any) -> dict[str, Any]:
    """Return conditions on labels (In, NotIn, Exists, DoesNotExist) in Ray's classes."""
    found = {}
    for expression in expressions:
        kind = getattr(theirs, type(expression.operator).__name__)
        found[expression.key] = kind(*getattr(expression.operator, "values", ()))
    return found


def environment(ours: Any) -> dict[str, Any]:
    """Return a runtime environment as a plain dictionary, which Ray validates.

    It has no `preload`: Ray does not fork its workers, so they import modules at their first use.
    """
    return {name: value for name, value in ours.items() if name != "preload"}
