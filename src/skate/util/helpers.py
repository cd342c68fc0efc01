"""Iteration over results in the order of completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import skate

if TYPE_CHECKING:
    from skate.remote_function import RemoteFunction

__all__ = ["as_completed", "map_unordered"]

# Results per `skate.wait`: waiting for several costs little more than waiting for one.
DEFAULT_CHUNK_SIZE = 10
# Tasks that `map_unordered` keeps in flight.
DEFAULT_BACKPRESSURE_SIZE = 100


def as_completed(
    refs: Sequence[skate.ObjectRef[Any]],
    *,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    yield_obj_refs: bool = False,
    **kwargs: Any,
) -> Iterator[Any]:
    """Return an iterator over the results of `refs` in the order of completion.

    Args:
        refs: The references to wait for.
        chunk_size: Number of results to wait for at a time. They are yielded together, in the order of `refs`; 1 yields
            each result as soon as it is ready.
        yield_obj_refs: Yield references instead of values.
        **kwargs: Passed to `skate.wait`, except for `num_returns`.

    Raises:
        ValueError: If `chunk_size` is less than 1, or `num_returns` is given.

    Example:
        >>> import skate
        >>> sorted(as_completed([skate.put(1), skate.put(2)]))
        [1, 2]
    """
    _check(chunk_size, kwargs)
    if isinstance(refs, skate.ObjectRef):
        raise TypeError(f"as_completed() needs a list of references, got {refs!r}: pass [ref]")
    return _iterate_completed(list(refs), chunk_size, yield_obj_refs, kwargs)


def map_unordered(
    fn: RemoteFunction[..., Any],
    items: Iterable[Any],
    *,
    backpressure_size: int | None = DEFAULT_BACKPRESSURE_SIZE,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    yield_obj_refs: bool = False,
    **kwargs: Any,
) -> Iterator[Any]:
    """Call a remote function on every item and return an iterator over the results in the order of completion.

    Args:
        fn: A remote function, or a method of an actor handle, that takes one argument.
        items: The arguments, which are consumed as tasks finish.
        backpressure_size: Maximum number of tasks in flight; None submits all at once.
        chunk_size: Number of results to wait for at a time; 1 yields each as soon as it is ready.
        yield_obj_refs: Yield references instead of values.
        **kwargs: Passed to `skate.wait`, except for `num_returns`.

    Raises:
        ValueError: If a size is less than 1, or `num_returns` is given.
        TypeError: If `fn` has no `remote`.

    Example:
        >>> import skate
        >>> @skate.remote
        ... def double(x):
        ...     return 2 * x
        >>> sorted(map_unordered(double, [1, 2, 3]))
        [2, 4, 6]
    """
    _check(chunk_size, kwargs)
    if backpressure_size is not None and backpressure_size < 1:
        raise ValueError(f"backpressure_size must be positive or None, got {backpressure_size}")
    if not callable(getattr(fn, "remote", None)):
        raise TypeError(
            f"map_unordered() needs a remote function, got {fn!r}: decorate it with @skate.remote"
        )
    return _iterate_mapped(fn, iter(items), backpressure_size, chunk_size, yield_obj_refs, kwargs)


def _check(chunk_size: int, wait_kwargs: dict[str, Any]) -> None:
    if chunk_size < 1:
        raise ValueError(f"`chunk_size` must be >= 1, got {chunk_size}")
    if "num_returns" in wait_kwargs:
        raise ValueError(
            "`num_returns` cannot be set here: `chunk_size` is the number of results per wait()."
        )


def _iterate_completed(
    refs: list[skate.ObjectRef[Any]], chunk_size: int, yield_obj_refs: bool, wait_kwargs: dict[str, Any]
) -> Iterator[Any]:
    while refs:
        ready, refs = skate.wait(refs, num_returns=min(chunk_size, len(refs)), **wait_kwargs)
        yield from ready if yield_obj_refs else skate.get(ready)


def _iterate_mapped(
    fn: Any,
    items: Iterator[Any],
    backpressure_size: int | None,
    chunk_size: int,
    yield_obj_refs: bool,
    wait_kwargs: dict[str, Any],
) -> Iterator[Any]:
    pending: list[skate.ObjectRef[Any]] = []
    for item in items:
        if backpressure_size is not None:
            while len(pending) >= backpressure_size:
                ready, pending = skate.wait(pending, num_returns=min(chunk_size, len(pending)), **wait_kwargs)
                yield from ready if yield_obj_refs else skate.get(ready)
        pending.append(fn.remote(item))
    yield from _iterate_completed(pending, chunk_size, yield_obj_refs, wait_kwargs)
