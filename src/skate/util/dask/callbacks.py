"""Callbacks for the computation of a dask graph."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import skate
from skate._api import progress
from skate.util.dask._graph import dask_callbacks

Callback: Any = dask_callbacks.Callback
local_callbacks: Any = dask_callbacks.local_callbacks

__all__ = [
    "ProgressBarCallback",
    "RayCallback",
    "RayCallbacks",
    "RayDaskCallback",
    "local_callbacks",
    "local_ray_callbacks",
    "unpack_ray_callbacks",
]

_Hook = Callable[..., Any] | None


class RayCallback(NamedTuple):
    """The hooks of one callback; None for undefined ones."""

    ray_presubmit: _Hook
    ray_postsubmit: _Hook
    ray_pretask: _Hook
    ray_posttask: _Hook
    ray_postsubmit_all: _Hook
    ray_finish: _Hook


class RayCallbacks(NamedTuple):
    """The hooks of all active callbacks, by kind.

    Hooks of a task come in pairs, with None for undefined ones, so that the result of a pretask hook reaches the
    posttask hook of the same callback.
    """

    ray_presubmit_cbs: list[Callable[..., Any]]
    ray_postsubmit_cbs: list[Callable[..., Any]]
    ray_pretask_cbs: list[_Hook]
    ray_posttask_cbs: list[_Hook]
    ray_postsubmit_all_cbs: list[Callable[..., Any]]
    ray_finish_cbs: list[Callable[..., Any]]


# The callbacks that `unregister` removes. They cannot be created again: a class that is sent to a task in this
# process is restored with new function objects, which do not equal the old ones.
_registered: dict[int, tuple[RayCallback, tuple[Any, ...]]] = {}


class RayDaskCallback(Callback):  # type: ignore[misc]
    """Observe or change the computation of a graph. Define any of the hooks in a subclass and use it with `with`.

    - `_ray_presubmit(task, key, deps)`: before a task is submitted. Any value but None becomes the result of the
      task, which is then not run.
    - `_ray_postsubmit(task, key, deps, object_ref)`: after it is submitted.
    - `_ray_pretask(key, object_refs)`: in the process of the task, before it runs, with the references of its
      dependencies.
    - `_ray_posttask(key, result, pre_state)`: in that process, after it has run, with the result of `_ray_pretask`.
    - `_ray_postsubmit_all(object_refs, dsk)`: after all tasks are submitted, with the final references.
    - `_ray_finish(result)`: at the end, with the final values.

    Hooks can also be passed as arguments named `ray_presubmit` and so on.

    Example:
        >>> class Names(RayDaskCallback):
        ...     def _ray_presubmit(self, task, key, deps):
        ...         print(key.partition("-")[0])
        >>> import dask
        >>> with Names():
        ...     dask.delayed(abs)(-1).compute(scheduler=skate.util.dask.ray_dask_get)
        abs
        1
    """

    ray_active: ClassVar[set[RayCallback]] = set()

    def __init__(self, **kwargs: Any) -> None:
        hooks = {name: kwargs.pop(name) for name in RayCallback._fields if name in kwargs}
        for name, hook in hooks.items():
            setattr(self, f"_{name}", hook)
        super().__init__(**kwargs)

    @property
    def _ray_callback(self) -> RayCallback:
        return RayCallback(*(getattr(self, f"_{name}", None) for name in RayCallback._fields))

    def __enter__(self) -> RayDaskCallback:
        self.register()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.unregister()

    def register(self) -> None:
        """Activate the callback for all further computations."""
        _registered[id(self)] = self._ray_callback, self._callback
        RayDaskCallback.ray_active.add(self._ray_callback)
        super().register()

    def unregister(self) -> None:
        """Deactivate the callback."""
        ours, of_dask = _registered.pop(id(self), (self._ray_callback, self._callback))
        RayDaskCallback.ray_active.discard(ours)
        Callback.active.discard(of_dask)


class ProgressBarCallback(RayDaskCallback):
    """Show the number of finished tasks of graphs that take longer than a second."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[skate.ObjectRef[Any]] = []

    def _ray_postsubmit(self, task: Any, key: Any, deps: Any, object_ref: skate.ObjectRef[Any]) -> None:
        self._pending.append(object_ref)

    def _ray_postsubmit_all(self, object_refs: Any, dsk: Any) -> None:
        pending, self._pending = self._pending, []
        total = len(pending)
        start = time.monotonic()

        def view() -> progress.View:
            bar = progress.Bar(total - len(pending), total, "tasks")
            return progress.View("dask", time.monotonic() - start, bar=bar)

        shown = progress.show(view)
        try:
            while pending:
                _, pending = skate.wait(pending, num_returns=1)
        finally:
            if shown is not None:
                shown.close()


def unpack_ray_callbacks(cbs: Iterable[RayCallback] | None) -> RayCallbacks:
    """Return the hooks of several callbacks, by kind."""
    callbacks = list(cbs or ())
    in_task = [cb for cb in callbacks if cb.ray_pretask or cb.ray_posttask]
    return RayCallbacks(
        [cb.ray_presubmit for cb in callbacks if cb.ray_presubmit],
        [cb.ray_postsubmit for cb in callbacks if cb.ray_postsubmit],
        [cb.ray_pretask for cb in in_task],
        [cb.ray_posttask for cb in in_task],
        [cb.ray_postsubmit_all for cb in callbacks if cb.ray_postsubmit_all],
        [cb.ray_finish for cb in callbacks if cb.ray_finish],
    )


@contextlib.contextmanager
def local_ray_callbacks(
    callbacks: Iterable[RayDaskCallback | RayCallback] | None = None,
) -> Iterator[list[RayCallback]]:
    """Yield the callbacks to use: the given ones, or else the active ones, which are inactive meanwhile.

    So a graph that is computed inside a hook of another one does not call the hook again.
    """
    if callbacks is not None:
        yield [_as_ray_callback(callback) for callback in callbacks]
        return
    active, RayDaskCallback.ray_active = RayDaskCallback.ray_active, set()
    try:
        yield list(active)
    finally:
        RayDaskCallback.ray_active = active


def _as_ray_callback(callback: Any) -> RayCallback:
    if isinstance(callback, RayDaskCallback):
        return callback._ray_callback
    if isinstance(callback, RayCallback):
        return callback
    raise TypeError(f"ray_callbacks must be RayDaskCallback or RayCallback objects, got {callback!r}")
