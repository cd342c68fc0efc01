"""Where a user's function runs: in tasks or in actors, how many, and with what."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import skate
from skate.data._arguments import POSITIVE, ArgumentTypeError, check_fields, message
from skate.data._plan.nodes import Compute

__all__ = ["ActorPoolStrategy", "ComputeStrategy", "TaskPoolStrategy"]


class ComputeStrategy:
    """Says whether a function runs in tasks or in actors."""


@dataclass(frozen=True)
class TaskPoolStrategy(ComputeStrategy):
    """Run a function in tasks, at most `size` at a time; None is as many as there are processors."""

    size: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, size=POSITIVE)


@dataclass(frozen=True, kw_only=True)
class ActorPoolStrategy(ComputeStrategy):
    """Run a function in actors: a fixed number, or more as there is more to do.

    Args:
        size: Exactly so many actors.
        min_size: At least so many; 1 if not given.
        max_size: At most so many; as many as there is room for if not given.
        initial_size: So many at the start; `min_size` if not given.
        max_tasks_in_flight_per_actor: Tasks that wait at or run in an actor at a time.

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
                raise ValueError("min_size, max_size and initial_size cannot be set together with `size`")
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
        """Fewest, most and first number of actors."""
        if self.size is not None:
            return self.size, self.size, self.size
        smallest = self.min_size or 1
        largest = _MANY if self.max_size in (None, float("inf")) else int(self.max_size or 0)
        return smallest, largest, self.initial_size or smallest


_MANY = 10_000

# Parameters of methods that take further options: what a misspelt option may have been meant for.
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
    """Return where a function runs, from what the user said about it.

    Args:
        is_class: The function is a class: its instances live in actors.
        compute: A strategy; it counts if both are given.
        concurrency: A number of tasks or actors, or (fewest, most) actors, or (fewest, most, first).
        options: Resources and other options of the tasks or actors; None is not given.
        options_fn: Called for further options when one starts.
    """
    given = {key: value for key, value in options.items() if value is not None}
    _check_options(given, is_class)
    if isinstance(compute, str):
        raise ValueError(
            f"`compute` must be a strategy, not {compute!r}: TaskPoolStrategy(size=…) for a function, "
            "ActorPoolStrategy(size=…) for a class, or nothing, which chooses one of them"
        )
    if compute is None:
        compute = _by_concurrency(is_class, concurrency)
    if isinstance(compute, ActorPoolStrategy):
        if not is_class:
            raise ValueError(
                "an ActorPoolStrategy needs a class whose instances are called: give map or map_batches a class with "
                "__call__, or leave `compute` out to run the function in tasks"
            )
        bounds = compute.bounds
        each = compute.max_tasks_in_flight_per_actor or 2
        return Compute(actors=bounds, tasks_per_actor=each, options=given, options_fn=options_fn)
    if not isinstance(compute, TaskPoolStrategy):
        words = "a TaskPoolStrategy, an ActorPoolStrategy or None"
        raise ArgumentTypeError(message("compute", words, compute))
    if is_class:
        raise ValueError(
            "a class needs actors: leave `compute` out, or give an ActorPoolStrategy, or the number of actors as "
            "`concurrency`"
        )
    return Compute(max_tasks=compute.size, options=given, options_fn=options_fn)


def _check_options(options: Mapping[str, Any], is_class: bool) -> None:
    """Raise for an option that tasks, or actors, do not have, or a value that it cannot have."""
    remote: Any = None
    for name, value in options.items():
        remote = remote or skate.remote(type("Function", (), {}) if is_class else lambda: None)
        try:
            remote.options(**{name: value})
        except (TypeError, ValueError) as error:
            close = difflib.get_close_matches(name, _PARAMETERS, 1, 0.75)
            if not close or name in _PARAMETERS:
                raise
            raise TypeError(
                f"There is no option {name!r} for datasets, tasks or actors: did you mean {close[0]!r}?"
            ) from error


def _by_concurrency(is_class: bool, concurrency: Any) -> ComputeStrategy:
    if concurrency is None:
        return ActorPoolStrategy() if is_class else TaskPoolStrategy()
    if isinstance(concurrency, tuple):
        if len(concurrency) not in (2, 3) or not all(isinstance(each, int) for each in concurrency):
            raise ValueError(
                "`concurrency` is expected to be set as a tuple of integers (fewest, most) or (fewest, most, first), "
                f"but got: {concurrency}"
            )
        if not is_class:
            raise ValueError(
                "`concurrency` is expected to be set as an integer when using a function, but got: "
                f"{concurrency}"
            )
        smallest, largest, *initial = concurrency
        return ActorPoolStrategy(
            min_size=smallest, max_size=largest, initial_size=initial[0] if initial else None
        )
    if isinstance(concurrency, bool) or not isinstance(concurrency, int):
        raise ValueError(
            f"`concurrency` is expected to be set as an integer or a tuple of integers, but got: {concurrency}"
        )
    if concurrency < 1:
        raise ValueError(f"`concurrency` is expected to be set a positive integer, but got: {concurrency}")
    return ActorPoolStrategy(size=concurrency) if is_class else TaskPoolStrategy(concurrency)
