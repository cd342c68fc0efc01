"""Scheduling strategies: run a task or actor in a placement group, on a node, or on nodes with labels."""

from __future__ import annotations

from typing import Any

from skate import NodeID
from skate._base.option_rules import Rule, bundle_index_problem
from skate._placement_group import PlacementGroup

__all__ = [
    "DoesNotExist",
    "Exists",
    "In",
    "LabelMatchExpressionsT",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
    "NotIn",
    "PlacementGroupSchedulingStrategy",
    "SchedulingStrategyT",
]


class _Strategy:
    """Base class of strategies, with a repr of their arguments."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
        )


class PlacementGroupSchedulingStrategy(_Strategy):
    """Run in the resources that a placement group reserved.

    Args:
        placement_group: The group; None keeps the inherited group.
        placement_group_bundle_index: Index of the bundle; -1 means any.
        placement_group_capture_child_tasks: Whether tasks and actors started inside also run in the group.

    Raises:
        TypeError: `placement_group` is not a placement group, or the index is not an integer.
        ValueError: The index is below -1.
    """

    def __init__(
        self,
        placement_group: PlacementGroup | None,
        placement_group_bundle_index: int = -1,
        placement_group_capture_child_tasks: bool | None = None,
    ) -> None:
        if not isinstance(placement_group, PlacementGroup | None):
            raise TypeError(
                "placement_group must be a group that placement_group() returned, or None, got "
                f"{placement_group!r} ({type(placement_group).__name__})."
            )
        Rule((int,), bundle_index_problem).apply("placement_group_bundle_index", placement_group_bundle_index)
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


class NodeAffinitySchedulingStrategy(_Strategy):
    """Run on one node.

    Args:
        node_id: Id of the node, as hexadecimal digits or a `NodeID`.
        soft: Whether another node may be used if this one is not available.

    Raises:
        ValueError: `node_id` is not the id of a node, or the flags contradict each other.
    """

    def __init__(
        self,
        node_id: str | NodeID,
        soft: bool,
        _spill_on_unavailable: bool = False,
        _fail_on_unavailable: bool = False,
    ) -> None:
        self.node_id = _check_node_id(node_id)
        self.soft = soft
        if _spill_on_unavailable and not soft:
            raise ValueError(
                "_spill_on_unavailable cannot be set when soft is False. Please set soft to True to use "
                "_spill_on_unavailable."
            )
        if _fail_on_unavailable and soft:
            raise ValueError(
                "_fail_on_unavailable cannot be set when soft is True. Please set soft to False to use "
                "_fail_on_unavailable."
            )
        self._spill_on_unavailable = _spill_on_unavailable
        self._fail_on_unavailable = _fail_on_unavailable


def _check_node_id(node_id: Any) -> str:
    text = node_id.hex() if isinstance(node_id, NodeID) else node_id
    try:
        checked = NodeID.from_hex(text)
    except (TypeError, ValueError):
        checked = NodeID.nil()
    if checked.is_nil():
        raise ValueError(
            f"Invalid node_id '{text}': it is not the id of a node in hexadecimal. nodes() lists all nodes, with their "
            "ids as 'NodeID'."
        )
    return checked.hex()


class In(_Strategy):
    """Match a label with one of these values."""

    def __init__(self, *values: str) -> None:
        _check_values("In", values)
        self.values = list(values)


class NotIn(_Strategy):
    """Match a label with none of these values, or a missing label."""

    def __init__(self, *values: str) -> None:
        _check_values("NotIn", values)
        self.values = list(values)


class Exists(_Strategy):
    """Match a label with any value."""


class DoesNotExist(_Strategy):
    """Match a missing label."""


def _check_values(operator: str, values: tuple[Any, ...]) -> None:
    if not values:
        raise ValueError(
            f"{operator}() has no values to compare a label with: pass one or more, as in {operator}('a', 'b')."
        )
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(
                f"{operator}() takes strings, as in {operator}('a', 'b'), but argument {position} is {value!r} "
                f"({type(value).__name__})."
            )


class LabelMatchExpression(_Strategy):
    """One condition of a label strategy: a key and an operator."""

    def __init__(self, key: str, operator: In | NotIn | Exists | DoesNotExist) -> None:
        self.key = key
        self.operator = operator

    def matches(self, labels: dict[str, str]) -> bool:
        """Return whether a node with `labels` meets the condition."""
        if isinstance(self.operator, Exists):
            return self.key in labels
        if isinstance(self.operator, DoesNotExist):
            return self.key not in labels
        return (labels.get(self.key) in self.operator.values) == isinstance(self.operator, In)


class NodeLabelSchedulingStrategy(_Strategy):
    """Run on a node with certain labels.

    Args:
        hard: Conditions that the node must meet.
        soft: Conditions that the node should meet, if possible.

    Raises:
        ValueError: Both are empty, or a condition is not one of the four operators.

    >>> NodeLabelSchedulingStrategy({"region": In("eu")}, soft={"spot": DoesNotExist()}).hard[0].key
    'region'
    """

    def __init__(
        self,
        hard: dict[str, In | NotIn | Exists | DoesNotExist] | None,
        *,
        soft: dict[str, In | NotIn | Exists | DoesNotExist] | None = None,
    ) -> None:
        self.hard = _expressions(hard, "hard")
        self.soft = _expressions(soft, "soft")
        if not self.hard and not self.soft:
            raise ValueError(
                "NodeLabelSchedulingStrategy has no condition: `hard` or `soft` must have one, as in "
                "hard={'zone': In('a')}."
            )


def _expressions(conditions: Any, parameter: str) -> list[LabelMatchExpression]:
    if conditions is None:
        return []
    example = f"as in {parameter}={{'zone': In('a')}}"
    if not isinstance(conditions, dict):
        raise ValueError(
            f"The {parameter} parameter must be a map, {example}, not {conditions!r} ({type(conditions).__name__})."
        )
    for key, operator in conditions.items():
        if not isinstance(key, str):
            raise ValueError(
                f"The keys of `{parameter}` must be strings, {example}, but {key!r} is of type {type(key).__name__}."
            )
        if not isinstance(operator, (In, NotIn, Exists, DoesNotExist)):
            raise ValueError(
                f"`{parameter}` has {operator!r} for the label {key!r}. It must be one of the `In`, `NotIn`, `Exists` "
                f"or `DoesNotExist` objects, {example}."
            )
    return [LabelMatchExpression(key, operator) for key, operator in conditions.items()]


LabelMatchExpressionsT = dict[str, In | NotIn | Exists | DoesNotExist]
SchedulingStrategyT = (
    str
    | PlacementGroupSchedulingStrategy
    | NodeAffinitySchedulingStrategy
    | NodeLabelSchedulingStrategy
    | None
)
