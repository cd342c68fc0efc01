"""Compute strategies: whether a function runs in tasks or actors, how many, and with which options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import skate
from skate._base.suggestions import closest
from skate.data._arguments import POSITIVE, ArgumentTypeError, check_fields, message
from skate.data._plan.nodes import Compute

__all__ = ["ActorPoolStrategy", "ComputeStrategy", "TaskPoolStrategy"]


class ComputeStrategy:
    """Base class of strategies, which select tasks or actors."""


@dataclass(frozen=True)
class TaskPoolStrategy(ComputeStrategy):
    """Run a function in tasks, at most `size` at a time; None means as many as there are CPUs."""

    size: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, size=POSITIVE)


@dataclass(frozen=True, kw_only=True)
class ActorPoolStrategy(ComputeStrategy):
    """Run a function in a pool of actors, of a fixed size or autoscaling.

    Args:
        size: Number of actors of a pool of fixed size.
        min_size: Minimum number of actors; 1 by default.
        max_size: Maximum number of actors; limited only by resources by default.
        initial_size: Initial number of actors; `min_size` by default.
        max_tasks_in_flight_per_actor: Maximum number of tasks that are queued at or run in an actor.

    >>> ActorPoolStrategy(size=2).bounds
    (2, 2, 2)
    """

    size: int | None = None
    min_size: int | None = None
    max_size: float | None = None
    initial_size: int | None = None
    max_tasks_in_flight_per_actor: int | None = None
    max_concurrent_calls_per_actor: int | None = None
    enable_true_multi_threading: bool | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            size=POSITIVE,
            min_size=POSITIVE,
            max_size=POSITIVE,
            initial_size=POSITIVE,
            max_tasks_in_flight_per_actor=POSITIVE,
            max_concurrent_calls_per_actor=POSITIVE,
        )
        if self.size is not None:
            if not self.min_size == self.max_size == self.initial_size is None:
                raise ValueError(
                    "`size` is the size of a fixed pool: leave it out to set min_size, max_size and initial_size"
                )
            return
        smallest, largest, initial = self.bounds
        if smallest > largest:
            raise ValueError(f"min_size ({smallest}) must be <= max_size ({largest})")
        if not smallest <= initial <= largest:
            raise ValueError(
                f"initial_size ({initial}) must lie between min_size ({smallest}) and max_size ({largest})"
            )

    @property
    def bounds(self) -> tuple[int, int, int]:
        """The minimum, maximum and initial number of actors."""
        if self.size is not None:
            return self.size, self.size, self.size
        smallest = self.min_size or 1
        largest = _MANY if self.max_size in (None, float("inf")) else int(self.max_size or 0)
        return smallest, largest, self.initial_size or smallest


_MANY = 10_000

# Parameters of methods that accept further options: candidates for a misspelled option.
_PARAMETERS = (
    *("batch_format", "batch_size", "compute", "concurrency", "fn_args", "fn_constructor_args"),
    *(
        "fn_constructor_kwargs",
        "fn_kwargs",
        "max_retries",
        "num_cpus",
        "num_gpus",
        "on_error",
        "zero_copy_batch",
    ),
)


def compute_of(
    is_class: bool,
    compute: Any,
    concurrency: Any,
    options: Mapping[str, Any],
    options_fn: Callable[[], dict[str, Any]] | None = None,
) -> Compute:
    """Return where a function runs, from the arguments of the user.

    Args:
        is_class: The function is a class, whose instances live in actors.
        compute: A strategy; it takes precedence over `concurrency`.
        concurrency: Number of tasks or actors, or (min, max) actors, or (min, max, initial).
        options: Resources and other options of the tasks or actors; None values are ignored.
        options_fn: Function that returns further options when a task or actor starts.
    """
    given = {key: value for key, value in options.items() if value is not None}
    _check_options(given, is_class)
    if isinstance(compute, str):
        raise ValueError(
            f"`compute` must be a strategy, got {compute!r}: TaskPoolStrategy(size=…) for a function, "
            "ActorPoolStrategy(size=…) for a class, or omit it to choose automatically"
        )
    if compute is None:
        compute = _by_concurrency(is_class, concurrency)
    if isinstance(compute, ActorPoolStrategy):
        if not is_class:
            raise ValueError(
                "an ActorPoolStrategy needs a class whose instances are called: pass a class with "
                "__call__, or omit `compute` to run the function in tasks"
            )
        bounds = compute.bounds
        each = compute.max_tasks_in_flight_per_actor or 2
        return Compute(actors=bounds, tasks_per_actor=each, options=given, options_fn=options_fn)
    if not isinstance(compute, TaskPoolStrategy):
        words = "a TaskPoolStrategy, an ActorPoolStrategy or None"
        raise ArgumentTypeError(message("compute", words, compute))
    if is_class:
        raise ValueError(
            "a class needs actors: omit `compute`, or pass an ActorPoolStrategy, or the number of actors as "
            "`concurrency`"
        )
    return Compute(max_tasks=compute.size, options=given, options_fn=options_fn)


def _check_options(options: Mapping[str, Any], is_class: bool) -> None:
    """Raise an error for an option that tasks or actors do not have, or an invalid value."""
    remote: Any = None
    for name, value in options.items():
        remote = remote or skate.remote(type("Function", (), {}) if is_class else lambda: None)
        try:
            if name == "max_calls" and not is_class:  # only a declaration may have it
                skate.remote(**{name: value})(lambda: None)
            else:
                remote.options(**{name: value})
        except (TypeError, ValueError) as error:
            close = closest(name, _PARAMETERS, alike=0.75)
            if close is None or name in _PARAMETERS:
                raise
            raise TypeError(
                f"Unknown option {name!r} for datasets, tasks or actors: did you mean {close!r}?"
            ) from error


def _by_concurrency(is_class: bool, concurrency: Any) -> ComputeStrategy:
    if concurrency is None:
        return ActorPoolStrategy() if is_class else TaskPoolStrategy()
    if isinstance(concurrency, tuple):
        if len(concurrency) not in (2, 3) or not all(isinstance(each, int) for each in concurrency):
            raise ValueError(
                "A tuple for `concurrency` holds 2 or 3 integers, (fewest, most) or (fewest, most, first), "
                f"not {concurrency}"
            )
        if not is_class:
            raise ValueError(
                f"A function takes an integer as `concurrency`, not {concurrency}: only pools of actors, for classes, "
                "grow and shrink"
            )
        smallest, largest, *initial = concurrency
        return ActorPoolStrategy(
            min_size=smallest, max_size=largest, initial_size=initial[0] if initial else None
        )
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise ValueError(
            f"`concurrency` must be an integer, or for a class a tuple of integers, not {concurrency!r}"
        )
    if concurrency < 1:
        raise ValueError(f"`concurrency` must be positive, not {concurrency}")
    return ActorPoolStrategy(size=concurrency) if is_class else TaskPoolStrategy(concurrency)
