"""Options of tasks, actors and actor methods: the arguments of `@remote(...)`, `.options(...)` and `@method(...)`.

A field that is None was not given; the `effective_…` properties return the value that then applies. An options object
validates itself, is immutable, and is equal only to itself, so that it can be used as a key.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Self, dataclass_transform

from skate._base import variables
from skate._base.option_rules import (
    ACTOR_RULES,
    METHOD_RULES,
    TASK_RULES,
    Rule,
    check_devices,
    check_together,
    unknown_option,
)

DEFAULT_TASK_MAX_RETRIES = 3
DEFAULT_ACTOR_CPUS_TO_PLACE = 1.0
ACCELERATOR_SHARE = 0.001
INFINITE = -1

# Keywords whose field has another name: a field's name may not start with an underscore, or the
# constructor's keyword would look private; and `resources` is a method.
_FIELD_OF: dict[str, str] = {
    "resources": "custom_resources",
    "_labels": "labels",
    "_generator_backpressure_num_objects": "generator_backpressure_num_objects",
    "_num_objects_per_yield": "num_objects_per_yield",
    "_actor_generator_backpressure_num_objects": "actor_generator_backpressure_num_objects",
}
_KEYWORD_OF: dict[str, str] = {field: keyword for keyword, field in _FIELD_OF.items()}


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
class _Options:
    """The common base: a frozen, keyword-only record that validates itself.

    `dataclasses` would do the same, but importing it and generating three constructors takes longer than the rest of
    the core's start. The instance's dictionary holds the given values; the class holds the defaults.
    """

    RULES: ClassVar[Mapping[str, Rule]]
    OPENING: ClassVar[str]
    ONLY_WHEN_DECLARED: ClassVar[frozenset[str]] = frozenset()
    FIELDS: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        own = (name for name in cls.__annotations__ if name in vars(cls))
        cls.FIELDS = cls.FIELDS.union(own)

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            if name not in self.FIELDS:
                raise TypeError(f"{type(self).__name__} has no field {name!r}")
            if value is getattr(type(self), name):
                continue
            keyword = _KEYWORD_OF.get(name, name)
            self.RULES[keyword].apply(keyword, value)
            self.__dict__[name] = value
        self._check_together()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed; use merged({{...}}) to get a new one")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the options from the keywords of a declaration such as `@remote(num_cpus=2)`.

        Args:
            options: Keywords as the user wrote them, with Ray's names.

        Raises:
            ValueError: A keyword is unknown, or its value is invalid.
            TypeError: A value has the wrong type.
        """
        return cls(**cls._checked(options))

    def merged(self, options: Mapping[str, Any]) -> Self:
        """Return these options, overridden by those of `.options(...)`.

        A given keyword wins even if it is None, which means "not given". Dictionaries (`resources`, `runtime_env`)
        are replaced, not merged.

        Raises:
            ValueError: A keyword is unknown, its value is invalid, or it may only be declared.
            TypeError: A value has the wrong type.
        """
        changes = self._checked(options)
        for keyword in self.ONLY_WHEN_DECLARED:
            if keyword in options:
                raise ValueError(f"Setting '{keyword}' is not supported in '.options()'.")
        self._check_per_yield(options)
        if not changes:
            return self
        return type(self)(**{**self._values(), **changes})

    def given(self) -> dict[str, Any]:
        """Return the given options, by the user's keywords."""
        return {_KEYWORD_OF.get(name, name): value for name, value in self._values().items()}

    @classmethod
    def _checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        for keyword, value in options.items():
            rule = cls.RULES.get(keyword)
            if rule is None:
                raise cls._unknown(keyword)
            rule.apply(keyword, value)
        return {_FIELD_OF.get(keyword, keyword): value for keyword, value in options.items()}

    @classmethod
    def _unknown(cls, keyword: str) -> Exception:
        opening = f"Invalid option keyword {keyword} for {cls.OPENING}. Valid ones are"
        return ValueError(unknown_option(keyword, cls.RULES, opening))

    def _check_per_yield(self, options: Mapping[str, Any]) -> None:
        """Refuse to change the number of objects per `yield`, which callers depend on."""
        new = options.get("_num_objects_per_yield")
        if new is not None and new != (getattr(self, "num_objects_per_yield", None) or 1):
            raise ValueError(
                f"_num_objects_per_yield cannot be overridden per call, got {new}. "
                "Declare it with @remote(_num_objects_per_yield=...) or @method(_num_objects_per_yield=...)."
            )

    def _check_together(self) -> None:
        """Raise ValueError if given options exclude each other."""

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({arguments})"

    def _values(self) -> dict[str, Any]:
        # The dictionary also holds cached properties.
        return {name: value for name, value in self.__dict__.items() if name in self.FIELDS}

    def __reduce__(self) -> tuple[Any, ...]:
        # Only given options are pickled, without cached properties.
        return _restore, (type(self), self._values())


def _restore(kind: type[_Options], values: dict[str, Any]) -> _Options:
    """Rebuild pickled options, which were validated when they were created."""
    options = object.__new__(kind)
    options.__dict__.update(values)
    return options


class _WorkOptions(_Options):
    """Options that tasks and actors share: resources, placement, environment."""

    label_selector: dict[str, str] | None = None
    fallback_strategy: list[dict[str, Any]] | None = None
    accelerator_type: str | None = None
    memory: float | None = None
    name: str | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    object_store_memory: int | None = None
    # "default" means "not given"; None means "in no placement group", even inside of one.
    placement_group: Any = "default"
    placement_group_bundle_index: int | None = None
    placement_group_capture_child_tasks: bool | None = None
    custom_resources: dict[str, float] | None = None
    runtime_env: dict[str, Any] | None = None
    scheduling_strategy: Any = None
    enable_task_events: bool | None = None
    labels: dict[str, str] | None = None

    @classmethod
    def _checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super()._checked(options)
        if options.get("placement_group", "default") not in ("default", None):
            _warn_deprecated(
                "placement_group parameter is deprecated: pass "
                "scheduling_strategy=PlacementGroupSchedulingStrategy(group)."
            )
        return checked

    def _check_together(self) -> None:
        check_together(self.given())

    @property
    def effective_placement_group_bundle_index(self) -> int:
        """Return the index of the bundle to use; -1 for any bundle."""
        index = self.placement_group_bundle_index
        return INFINITE if index is None else index

    @property
    def effective_enable_task_events(self) -> bool:
        """Return whether events are recorded for the state API."""
        return self.enable_task_events is not False

    def resources(self, default_cpus: float | None = None) -> dict[str, float]:
        """Return the requested resources by name, without those of quantity 0.

        Args:
            default_cpus: CPUs when `num_cpus` was not given.

        >>> TaskOptions(num_gpus=0.5, custom_resources={"disk": 2}).resources(default_cpus=1)
        {'disk': 2.0, 'CPU': 1.0, 'GPU': 0.5}
        """
        asked: dict[str, float | None] = {
            **(self.custom_resources or {}),
            "CPU": default_cpus if self.num_cpus is None else self.num_cpus,
            "GPU": self.num_gpus,
            "memory": None if self.memory is None else int(self.memory),  # whole bytes
            "object_store_memory": self.object_store_memory,
        }
        if self.accelerator_type is not None:
            asked[f"accelerator_type:{self.accelerator_type}"] = ACCELERATOR_SHARE
        check_devices(asked)
        return {name: float(quantity) for name, quantity in asked.items() if quantity}


class TaskOptions(_WorkOptions):
    """Options of a remote function.

    >>> TaskOptions.parse({"num_cpus": 2}).merged({"max_retries": 0}).given()
    {'num_cpus': 2, 'max_retries': 0}
    """

    RULES = TASK_RULES
    OPENING = "remote functions"
    ONLY_WHEN_DECLARED = frozenset({"max_calls"})

    max_calls: int | None = None
    max_retries: int | None = None
    num_returns: int | str | None = None
    retry_exceptions: bool | list[type[Exception]] | tuple[type[Exception], ...] | None = None
    generator_backpressure_num_objects: int | None = None
    num_objects_per_yield: int | None = None

    @cached_property
    def effective_max_retries(self) -> int:
        """Return the number of retries after a failure; -1 for unlimited."""
        return default_max_retries() if self.max_retries is None else self.max_retries

    @property
    def effective_max_calls(self) -> int:
        """Return the number of calls after which a worker is replaced; 0 for never.

        A worker that used a GPU is replaced after one call, because libraries keep memory on the device.
        """
        if self.max_calls is not None:
            return self.max_calls
        return 1 if self.num_gpus else 0

    @property
    def effective_retry_exceptions(self) -> bool | tuple[type[Exception], ...]:
        """Return whether exceptions of the function are retried, or which."""
        return _exceptions(self.retry_exceptions)

    @property
    def effective_num_objects_per_yield(self) -> int:
        """Return the number of objects per `yield` of a streaming generator."""
        return self.num_objects_per_yield or 1

    @property
    def effective_generator_backpressure_num_objects(self) -> int:
        """Return how many objects a generator may be ahead of its consumer; -1 for unlimited."""
        return self.generator_backpressure_num_objects or INFINITE

    @cached_property
    def effective_resources(self) -> dict[str, float]:
        """Return the resources of a running task: one CPU by default."""
        return self.resources(default_cpus=1.0)


class ActorOptions(_WorkOptions):
    """Options of an actor class.

    >>> ActorOptions.parse({"max_restarts": -1}).effective_max_restarts
    -1
    """

    RULES = ACTOR_RULES
    OPENING = "actors"
    ONLY_WHEN_DECLARED = frozenset({"concurrency_groups"})

    concurrency_groups: dict[str, int] | list[dict[str, Any]] | None = None
    enable_tensor_transport: bool | None = None
    lifetime: str | None = None
    max_concurrency: int | None = None
    max_restarts: int | None = None
    max_task_retries: int | None = None
    max_pending_calls: int | None = None
    namespace: str | None = None
    get_if_exists: bool | None = None
    allow_out_of_order_execution: bool | None = None
    actor_generator_backpressure_num_objects: int | None = None

    @classmethod
    def _checked(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        checked = super()._checked(options)
        if options.get("object_store_memory") is not None:
            _warn_deprecated(
                "Setting 'object_store_memory' for actors is deprecated: it reserves no memory. Leave it out; objects "
                "that do not fit into the object store are spilled to disk."
            )
        return checked

    def _check_together(self) -> None:
        super()._check_together()
        if self.get_if_exists and not self.name:
            raise ValueError("A name must be specified to use `get_if_exists`: pass name=... as well.")

    @property
    def is_detached(self) -> bool:
        """Return whether the actor outlives its driver."""
        return self.lifetime == "detached"

    @property
    def effective_max_restarts(self) -> int:
        """Return the number of restarts after the death of the actor's process; -1 for unlimited."""
        return self.max_restarts or 0

    @property
    def effective_max_task_retries(self) -> int:
        """Return the number of retries of a call after the actor died; -1 for unlimited."""
        return self.max_task_retries or 0

    @property
    def effective_max_pending_calls(self) -> int:
        """Return how many calls a handle may have in flight; -1 for unlimited."""
        return INFINITE if self.max_pending_calls is None else self.max_pending_calls

    @property
    def effective_get_if_exists(self) -> bool:
        """Return whether an existing actor with the name is used."""
        return bool(self.get_if_exists)

    @property
    def effective_actor_generator_backpressure_num_objects(self) -> int:
        """Return how many unconsumed objects all generators of the actor may hold; -1 for unlimited."""
        return self.actor_generator_backpressure_num_objects or INFINITE

    def effective_max_concurrency(self, *, is_async: bool) -> int:
        """Return the number of concurrent calls: by default 1000 for an asyncio actor, otherwise 1."""
        return self.max_concurrency or (1000 if is_async else 1)

    @cached_property
    def effective_resources(self) -> dict[str, float]:
        """Return the resources that the actor holds while it lives.

        An actor without a request holds nothing, so that there can be more actors than CPUs; one that requests a GPU
        or a custom resource also holds a CPU.
        """
        asks = self.num_gpus is not None or self.custom_resources or self.accelerator_type
        return self.resources(default_cpus=1.0 if asks else 0.0)

    @cached_property
    def placement_resources(self) -> dict[str, float]:
        """Return the resources that must be free for the actor to start, of which it may hold fewer."""
        return self.resources(default_cpus=DEFAULT_ACTOR_CPUS_TO_PLACE)


class MethodOptions(_Options):
    """Options of an actor's method: of `@method(...)` and of `handle.method.options(...)`.

    None stands for the actor's options.
    """

    RULES = METHOD_RULES
    OPENING = "actor methods"

    name: str | None = None
    num_returns: int | str | None = None
    concurrency_group: str | None = None
    max_task_retries: int | None = None
    retry_exceptions: bool | list[type[Exception]] | tuple[type[Exception], ...] | None = None
    enable_task_events: bool | None = None
    tensor_transport: str | None = None
    generator_backpressure_num_objects: int | None = None
    num_objects_per_yield: int | None = None

    @property
    def effective_retry_exceptions(self) -> bool | tuple[type[Exception], ...]:
        """Return whether exceptions of the method are retried, or which."""
        return _exceptions(self.retry_exceptions)

    @property
    def effective_enable_task_events(self) -> bool:
        """Return whether events are recorded for the state API."""
        return self.enable_task_events is not False

    @property
    def effective_num_objects_per_yield(self) -> int:
        """Return the number of objects per `yield` of a streaming generator."""
        return self.num_objects_per_yield or 1

    @property
    def effective_generator_backpressure_num_objects(self) -> int:
        """Return how many objects a generator may be ahead of its consumer; -1 for unlimited."""
        return self.generator_backpressure_num_objects or INFINITE


def default_max_retries() -> int:
    """Return the default number of retries of a task: SKATE_TASK_MAX_RETRIES or 3."""
    return variables.integer("TASK_MAX_RETRIES", DEFAULT_TASK_MAX_RETRIES)


def check_num_returns(num_returns: int | str | None, *, is_generator: bool, stacklevel: int = 3) -> None:
    """Raise ValueError if `num_returns` requests a stream from a function that is not a generator.

    Args:
        num_returns: The option as given.
        is_generator: Whether the function or method is a generator, plain or asynchronous.
        stacklevel: Frames between the caller of this function and the line to warn about.
    """
    if num_returns not in ("streaming", "dynamic"):
        return
    if not is_generator:
        raise ValueError(
            f"num_returns='{num_returns}' can only be used with generators, and this function has no `yield`. "
            "Leave num_returns out, or pass the number of values that it returns."
        )
    if num_returns == "dynamic":
        warnings.warn(
            "num_returns='dynamic' is deprecated. Use num_returns='streaming' instead.",
            DeprecationWarning,
            stacklevel=stacklevel,
        )


def _warn_deprecated(message: str) -> None:
    # Frames between here and the user's line: _checked (once or twice), parse or merged, the decorator or
    # `.options`. The distance to the user's line varies, so this is the nearest certain one.
    warnings.warn(message, DeprecationWarning, stacklevel=5)


def _exceptions(
    value: bool | list[type[Exception]] | tuple[type[Exception], ...] | None,
) -> bool | tuple[type[Exception], ...]:
    if value is None or isinstance(value, bool):
        return bool(value)
    return tuple(value)
