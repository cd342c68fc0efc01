"""A call before an engine runs it: its arguments, number of results, and placement."""

from __future__ import annotations

from typing import Any, NamedTuple

from skate._base.exports import explain
from skate._base.object_ref import ObjectRef
from skate._base.options import ActorOptions, TaskOptions
from skate._base.serialization import Serialized, dumps_call
from skate._engine.common.values import DYNAMIC, STREAMING

LONGEST_REPR = 200

Dependencies = list[tuple[int | str, ObjectRef[Any]]]


def split_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Dependencies]:
    """Remove the references from a call's arguments; the callee gets their values instead."""
    found: Dependencies = []
    for position, value in enumerate(args):
        if type(value) is ObjectRef:
            found.append((position, value))
    if kwargs:
        for name, value in kwargs.items():
            if type(value) is ObjectRef:
                found.append((name, value))
    if found:
        changed = list(args)
        kwargs = kwargs.copy()  # of the same class, which may carry a trace context
        for slot, _ in found:
            if isinstance(slot, int):
                changed[slot] = None
            else:
                kwargs[slot] = None
        args = tuple(changed)
    return args, kwargs, found


def pack_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], what: str) -> Serialized:
    """Serialize arguments; the error for one that cannot be pickled contains the path to the part at fault."""
    try:
        return dumps_call(args, kwargs)
    except RecursionError:
        raise
    except Exception as error:
        culprit = explain((args, kwargs), f"the argument of {what}", error)
        raise TypeError(_name_argument(culprit, args, kwargs)) from error


def _name_argument(text: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Replace positions in the pickled pair by args[0] and kwargs['x']."""
    for index in range(len(args)):
        text = text.replace(f"obj[0][{index}]", f"args[{index}]")
    for name in kwargs:
        text = text.replace(f"obj[1][{name!r}]", f"kwargs[{name!r}]")
    return text


def count_of(num_returns: int | str | None, *, generator: bool) -> int:
    """Return the number of results, or the kind of generator."""
    if num_returns is None:
        return STREAMING if generator else 1
    if num_returns == "streaming":
        return STREAMING
    if num_returns == "dynamic":
        return DYNAMIC
    return int(num_returns)


class Placement(NamedTuple):
    """The place where a task or an actor must run."""

    group: bytes  # placement group; empty for none
    bundle: int  # -1 is any bundle
    capture_children: bool  # whether its children run in the same group
    node: str  # the required node, in hexadecimal


def placement(options: TaskOptions | ActorOptions, submitter: Any) -> Placement:
    """Return the placement of a call from its options and the template of its submitter."""
    strategy = options.scheduling_strategy
    group = options.placement_group
    bundle = options.effective_placement_group_bundle_index
    capture = bool(options.placement_group_capture_child_tasks)
    node = ""
    kind = type(strategy).__name__
    if kind == "PlacementGroupSchedulingStrategy":
        group = strategy.placement_group
        bundle = strategy.placement_group_bundle_index
        capture = bool(strategy.placement_group_capture_child_tasks)
    elif kind == "NodeAffinitySchedulingStrategy" and not strategy.soft:
        node = str(strategy.node_id)
    if group == "default":
        if submitter is not None and submitter.capture_children and submitter.group and strategy is None:
            return Placement(submitter.group, -1, True, node)
        return Placement(b"", -1, False, node)
    if group is None or group.id.is_nil():
        return Placement(b"", -1, False, node)
    return Placement(group.id.binary(), -1 if bundle is None else bundle, capture, node)


def label_selectors(options: TaskOptions | ActorOptions) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the required label selector, and the alternatives to it."""
    strategy = options.scheduling_strategy
    wanted = dict(options.label_selector or {})
    if type(strategy).__name__ == "NodeLabelSchedulingStrategy":
        for condition in strategy.hard:
            wanted[condition.key] = _as_selector(condition.operator)
    choices = [dict(choice.get("label_selector") or {}) for choice in options.fallback_strategy or []]
    return wanted, choices


def _as_selector(operator: Any) -> str:
    kind = type(operator).__name__
    values = ", ".join(getattr(operator, "values", ()))
    if kind == "In":
        return f"in({values})"
    if kind == "NotIn":
        return f"!in({values})"
    return "!in()" if kind == "Exists" else "in()"


def concurrency_groups(options: ActorOptions) -> dict[str, int]:
    """Return the concurrency of each concurrency group of an actor."""
    groups = options.concurrency_groups or {}
    if isinstance(groups, list):
        return {group["name"]: int(group["max_concurrency"]) for group in groups}
    return dict(groups)


def repr_of_actor(instance: object, class_name: str) -> str:
    """Return the `repr` of an actor whose class defines one, in one line, and else nothing."""
    kind: Any = type(instance)
    if kind.__repr__ is object.__repr__:
        return ""
    try:
        return " ".join(repr(instance).split())[:LONGEST_REPR]
    except Exception:
        import logging

        logging.getLogger("skate").exception("__repr__ of %s failed", class_name)
        return ""
