"""Rules for the options of tasks, actors and methods: their types, and the checks of their values.

There is one table per kind, in the order in which error messages list the names. A check returns None, or the
sentence to raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from skate._base.accelerators import DEVICE_VARIABLES, UNSHAREABLE
from skate._base.labels import fallback_strategy_problem, label_selector_problem
from skate._base.suggestions import did_you_mean

NONE = type(None)
RESOURCE_UNIT = 0.0001


class Rule(NamedTuple):
    """The types an option accepts and the check of its value.

    `classes` are names of further accepted classes, which are defined in higher layers.
    """

    types: tuple[type, ...]
    check: Callable[[Any], str | None] | None = None
    classes: tuple[str, ...] = ()

    def apply(self, keyword: str, value: Any) -> None:
        """Raise TypeError or ValueError unless `value` is valid for the option `keyword`."""
        if not isinstance(value, self.types) and type(value).__name__ not in self.classes:
            accepted: object = self.types[0] if len(self.types) == 1 else self.types
            more = f" or one of {', '.join(self.classes)}" if self.classes else ""
            raise TypeError(
                f"The type of keyword '{keyword}' must be {accepted}{more}, but received type {type(value)}: {value!r}."
            )
        problem = self.check(value) if self.check is not None else None
        if problem:
            raise ValueError(problem)


def _count(keyword: str, *, infinite: bool) -> Rule:
    lowest = -1 if infinite else 0
    meaning = (
        "0, -1 or a positive integer, where -1 represents infinity."
        if infinite
        else "0 or a positive integer."
    )

    def check(value: int | None) -> str | None:
        if value is None or value >= lowest:
            return None
        return f"The keyword '{keyword}' only accepts None, {meaning} Got {value}."

    return Rule((int, NONE), check)


def quantity_problem(name: str, quantity: Any) -> str | None:
    """Return the problem with `quantity` as an amount of the resource `name`, or None."""
    if not isinstance(quantity, (int, float)):
        return f"The quantity of resource {name} must be a number, but received type {type(quantity)}: {quantity!r}."
    if quantity < 0:
        return f"The quantity of resource {name} cannot be negative. Got {quantity}."
    if 0 < quantity < RESOURCE_UNIT:
        return (
            f"The precision of the fractional quantity of resource {name} cannot go beyond {RESOURCE_UNIT}; "
            f"it is {quantity}."
        )
    if quantity != quantity or quantity == float("inf"):
        return f"The quantity of resource {name} must be finite. Got {quantity}."
    return None


def check_devices(asked: Mapping[str, float | None]) -> None:
    """Raise ValueError for a fraction above one device, or a fraction of a device that processes cannot share."""
    for name in DEVICE_VARIABLES:
        quantity = asked.get(name)
        if quantity is None or quantity == int(quantity):
            continue
        if name in UNSHAREABLE:
            raise ValueError(
                f"The {name} resource quantity must be a whole number, since processes cannot share a device; got "
                f"{quantity}."
            )
        if quantity > 1:
            raise ValueError(
                f"{quantity} of the resource {name} is not possible: quantities above 1 must be whole numbers."
            )


def _quantity(keyword: str) -> Rule:
    return Rule((float, int, NONE), lambda value: None if value is None else quantity_problem(keyword, value))


def _resources_problem(resources: dict[Any, Any] | None) -> str | None:
    if resources is None:
        return None
    if "CPU" in resources or "GPU" in resources:
        return f"Use the 'num_cpus' and 'num_gpus' keyword arguments: `resources` is for others, got {resources}."
    for name, quantity in resources.items():
        if not isinstance(name, str):
            return f"The name of a resource must be a string, but received {name!r} in 'resources' keyword"
        if name in ("memory", "object_store_memory"):
            return f"`resources` has {name!r}, which has an option of its own: pass {name}={quantity!r}."
        problem = quantity_problem(name, quantity)
        if problem:
            return problem
    return None


def _num_returns_problem(value: int | str | None) -> str | None:
    if value is None or value in ("dynamic", "streaming") or (isinstance(value, int) and value >= 0):
        return None
    return (
        "The keyword 'num_returns' only accepts None, a non-negative integer, 'streaming' (for generators), or "
        f"'dynamic', got {value!r} (num_returns must be >= 0). None means 1, and 'streaming' for a generator."
    )


def _retry_exceptions_problem(value: bool | list[Any] | tuple[Any, ...] | None) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if all(isinstance(item, type) and issubclass(item, Exception) for item in value):
        return None
    return f"retry_exceptions is True, False or a list of subclasses of Exception, not {value!r}."


def _backpressure_problem(value: int | None) -> str | None:
    if value != 0:
        return None
    return (
        "_generator_backpressure_num_objects=0 is not allowed: the generator could never yield. 1 makes each object "
        "when the caller asks for it, like a Python generator; -1 sets no limit."
    )


def _actor_backpressure_problem(value: int | None) -> str | None:
    if value is None or value > 0 or value == -1:
        return None
    return (
        f"_actor_generator_backpressure_num_objects must be > 0, or -1 for no limit; got {value}. It limits the "
        "objects of all the actor's generators that nobody has consumed yet."
    )


def _per_yield_problem(value: int | None) -> str | None:
    if value is None or value > 0:
        return None
    return (
        f"_num_objects_per_yield={value} is invalid: it is the number of objects in each `yield` of a generator, 1 or "
        "more."
    )


def bundle_index_problem(value: int) -> str | None:
    """Return the problem with the index of a bundle, or None."""
    if value >= -1:
        return None
    return f"placement_group_bundle_index must be -1, for any bundle, or the index of a bundle, got {value}."


def _lifetime_problem(value: str | None) -> str | None:
    if value in (None, "detached", "non_detached"):
        return None
    return f"The lifetime of an actor is None, 'detached' or 'non_detached', not {value!r}."


def _object_store_memory_problem(value: int | None) -> str | None:
    return (
        None
        if value is None
        else "Tasks have no option object_store_memory: leave it out. `memory` reserves memory of the node."
    )


def _name_problem(value: str | None) -> str | None:
    return "Actor name cannot be an empty string." if value == "" else None


def _namespace_problem(value: str | None) -> str | None:
    return (
        'A namespace cannot be the empty string "". Leave it out, or pass None, for the namespace of the session.'
        if value == ""
        else None
    )


def _strategy_problem(value: object) -> str | None:
    if not isinstance(value, str) or value in ("DEFAULT", "SPREAD"):
        return None
    return (
        f"Invalid scheduling_strategy value {value!r}. Pass 'DEFAULT', 'SPREAD', or an instance of "
        f"{', '.join(_STRATEGIES[:-1])} or {_STRATEGIES[-1]}."
    )


_DICT = Rule((dict, NONE))
_STR = Rule((str, NONE))
_BOOL = Rule((bool, NONE))
_STRATEGIES = (
    "PlacementGroupSchedulingStrategy",
    "NodeAffinitySchedulingStrategy",
    "NodeLabelSchedulingStrategy",
)
_RETRY_EXCEPTIONS = Rule((bool, list, tuple), _retry_exceptions_problem)
_NUM_RETURNS = Rule((int, str, NONE), _num_returns_problem)

_COMMON: dict[str, Rule] = {
    "label_selector": Rule((dict, NONE), label_selector_problem),
    "fallback_strategy": Rule((list, NONE), fallback_strategy_problem),
    "accelerator_type": _STR,
    "memory": _quantity("memory"),
    "name": _STR,
    "num_cpus": _quantity("num_cpus"),
    "num_gpus": _quantity("num_gpus"),
    "object_store_memory": _count("object_store_memory", infinite=False),
    "placement_group": Rule((NONE, str), None, ("PlacementGroup",)),
    "placement_group_bundle_index": Rule((int,), bundle_index_problem),
    "placement_group_capture_child_tasks": _BOOL,
    "resources": Rule((dict, NONE), _resources_problem),
    "runtime_env": _DICT,
    "scheduling_strategy": Rule((NONE, str), _strategy_problem, _STRATEGIES),
    "enable_task_events": Rule((bool,)),
    "_labels": _DICT,
}

TASK_RULES: dict[str, Rule] = {
    **_COMMON,
    "object_store_memory": Rule((int, NONE), _object_store_memory_problem),
    "max_calls": _count("max_calls", infinite=False),
    "max_retries": _count("max_retries", infinite=True),
    "num_returns": _NUM_RETURNS,
    "retry_exceptions": _RETRY_EXCEPTIONS,
    "_generator_backpressure_num_objects": Rule((int, NONE), _backpressure_problem),
    "_num_objects_per_yield": Rule((int, NONE), _per_yield_problem),
}

ACTOR_RULES: dict[str, Rule] = {
    **_COMMON,
    "name": Rule((str, NONE), _name_problem),
    "concurrency_groups": Rule((list, dict, NONE)),
    "enable_tensor_transport": _BOOL,
    "lifetime": Rule((str, NONE), _lifetime_problem),
    "max_concurrency": _count("max_concurrency", infinite=False),
    "max_restarts": _count("max_restarts", infinite=True),
    "max_task_retries": _count("max_task_retries", infinite=True),
    "max_pending_calls": _count("max_pending_calls", infinite=True),
    "namespace": Rule((str, NONE), _namespace_problem),
    "get_if_exists": Rule((bool,)),
    "allow_out_of_order_execution": _BOOL,
    "_actor_generator_backpressure_num_objects": Rule((int, NONE), _actor_backpressure_problem),
}

METHOD_RULES: dict[str, Rule] = {
    "name": _STR,
    "num_returns": _NUM_RETURNS,
    "concurrency_group": _STR,
    "max_task_retries": _count("max_task_retries", infinite=True),
    "retry_exceptions": Rule((bool, list, tuple, NONE), _retry_exceptions_problem),
    "enable_task_events": _BOOL,
    "tensor_transport": _STR,
    "_generator_backpressure_num_objects": Rule((int, NONE), _backpressure_problem),
    "_num_objects_per_yield": Rule((int, NONE), _per_yield_problem),
}


def unknown_option(keyword: str, valid: Iterable[str], opening: str) -> str:
    """Return the message for an unknown option, with the closest known one."""
    names = list(valid)
    return f"{opening} {names}.{did_you_mean(keyword, names)}"


def check_together(given: Mapping[str, Any]) -> None:
    """Raise ValueError if options of tasks or actors that exclude each other are given."""
    if given.get("placement_group", "default") not in ("default", None) and given.get("scheduling_strategy"):
        raise ValueError(
            "placement_group and scheduling_strategy are both given. Placement groups should be specified via "
            "scheduling_strategy=PlacementGroupSchedulingStrategy(group): drop the other."
        )
