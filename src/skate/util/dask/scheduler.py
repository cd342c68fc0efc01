"""The dask scheduler, which runs one Skate task per task of a graph."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import skate
from skate.util.dask._graph import (
    Alias,
    DataNode,
    Key,
    Node,
    as_graph,
    cull,
    dask,
    options_by_key,
    order,
    refs_in,
    substitute_values,
)
from skate.util.dask.callbacks import (
    ProgressBarCallback,
    RayCallback,
    RayCallbacks,
    local_callbacks,
    local_ray_callbacks,
    unpack_ray_callbacks,
)

__all__ = [
    "disable_dask_on_ray",
    "enable_dask_on_ray",
    "ray_dask_get",
    "ray_dask_get_sync",
    "ray_dask_persist",
]


def ray_dask_get(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Compute keys of a dask graph with Skate tasks.

    Pass it to dask as the scheduler, or make it the default with `enable_dask_on_ray()`. Results stay in shared memory
    between tasks. A reference among the arguments of a dask task is passed as its value.

    Args:
        dsk: The graph, or an expression that has one.
        keys: A key, or a list (of lists) of keys.
        **kwargs: `ray_remote_args`, options for the tasks, as in `f.options(...)`; `ray_callbacks`,
            `RayDaskCallback` objects to use instead of the active ones; `ray_persist=True` to return references instead
            of values. Arguments that dask passes for other schedulers are ignored.

    Returns:
        The value of the key, or tuples of values for lists of keys.

    Raises:
        KeyError: If the graph lacks a key.
        ValueError: If `resources` are passed outside of `ray_remote_args`.

    Example:
        >>> import dask
        >>> dask.delayed(sum)([1, 2, 3]).compute(scheduler=ray_dask_get)
        6
    """
    return _compute(dsk, keys, one_at_a_time=False, **kwargs)


def ray_dask_get_sync(dsk: Any, keys: Any, **kwargs: Any) -> Any:
    """Compute keys of a dask graph with Skate tasks, one at a time.

    For debugging: the first failure is raised first. Otherwise like `ray_dask_get`.
    """
    return _compute(dsk, keys, one_at_a_time=True, **kwargs)


def ray_dask_persist(*args: Any, **kwargs: Any) -> Any:
    """Compute dask collections in the background, like `dask.persist`, and keep the results in Skate.

    Returns immediately. The new collections consist of references to pending results; compute them with this
    scheduler too. `collection.persist(scheduler=ray_dask_get)` does the same.
    """
    scheduler = kwargs.pop("scheduler", None) or dask.config.get("scheduler", None) or ray_dask_get
    return dask.persist(*args, scheduler=functools.partial(scheduler, ray_persist=True), **kwargs)


def enable_dask_on_ray(shuffle: str | None = "tasks", use_shuffle_optimization: bool | None = True) -> Any:
    """Make `ray_dask_get` dask's default scheduler.

    Args:
        shuffle: How dask shuffles data frames: "tasks" or "disk".
        use_shuffle_optimization: Accepted as in Ray, without effect: dask optimizes its shuffles itself.

    Returns:
        The return value of `dask.config.set`: as a context manager, it limits the setting to a block.

    Example:
        >>> import dask
        >>> with enable_dask_on_ray():
        ...     dask.delayed(abs)(-3).compute()
        3
    """
    return dask.config.set({"scheduler": ray_dask_get, "dataframe.shuffle.method": shuffle})


def disable_dask_on_ray() -> Any:
    """Restore dask's own default scheduler and shuffle method."""
    return dask.config.set({"scheduler": None, "dataframe.shuffle.method": None})


def _persist(
    get: Callable[..., Any], collections: Sequence[Any], *, optimize_graph: bool = True, **kwargs: Any
) -> Sequence[Any]:
    persisted: Sequence[Any] = ray_dask_persist(
        *collections, traverse=False, optimize_graph=optimize_graph, scheduler=get, **kwargs
    )
    return persisted


# dask.persist calls a method of this name of the scheduler, if there is one.
ray_dask_get.persist = functools.partial(_persist, ray_dask_get)  # type: ignore[attr-defined]
ray_dask_get_sync.persist = functools.partial(_persist, ray_dask_get_sync)  # type: ignore[attr-defined]


def _compute(
    dsk: Any,
    keys: Any,
    *,
    one_at_a_time: bool,
    ray_callbacks: Iterable[Any] | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    ray_persist: bool = False,
    _ray_enable_progress_bar: bool | None = None,
    callbacks: Any = None,
    resources: Any = None,
    **ignored: Any,
) -> Any:
    if resources is not None:
        raise ValueError(
            f"this scheduler expects resources={resources!r} in the task options: "
            "pass ray_remote_args={'resources': ...}"
        )
    wanted = set(_flatten(keys))
    with local_ray_callbacks(ray_callbacks) as active, local_callbacks(callbacks) as of_dask:
        hooks = unpack_ray_callbacks(_with_progress_bar(active, _ray_enable_progress_bar))
        diagnostics = Diagnostics(of_dask)
        failed = True
        try:
            graph = as_graph(dsk)
            diagnostics.start(graph)
            graph = cull(as_graph(graph), wanted)
            options = options_by_key(dsk, ray_remote_args or {}, graph)
            submission = _Submission(graph, wanted, options, hooks, diagnostics)
            found = submission.run(one_at_a_time=one_at_a_time)
            for hook in hooks.ray_postsubmit_all_cbs:
                hook(_nest(keys, found), graph)
            if ray_persist:
                failed = False
                return _nest(keys, found)
            submission.follow()
            result = _nest(keys, _values_of(found))
            failed = False
        finally:
            diagnostics.end(failed=failed)
        for hook in hooks.ray_finish_cbs:
            hook(result)
    return result


class _Submission:
    """The submission of one graph."""

    def __init__(
        self,
        graph: dict[Key, Node],
        wanted: set[Key],
        options: dict[Key, dict[str, Any]],
        hooks: RayCallbacks,
        diagnostics: Diagnostics,
    ) -> None:
        self._graph = graph
        self._wanted = wanted
        self._options = options
        self._hooks = hooks
        self._diagnostics = diagnostics
        self._pending: dict[skate.ObjectRef[Any], Key] = {}  # only if diagnostics are active

    def run(self, *, one_at_a_time: bool) -> dict[Key, Any]:
        """Submit all tasks; return references or values of the wanted keys."""
        uses = Counter(dep for node in self._graph.values() for dep in node.dependencies)
        uses.update(self._wanted)
        found: dict[Key, Any] = {}
        for key in sorted(self._graph, key=order(self._graph).__getitem__):
            deps = {dep: found[dep] for dep in self._graph[key].dependencies}
            found[key] = self._submit(key, deps, uses[key])
            if one_at_a_time and isinstance(found[key], skate.ObjectRef):
                skate.get(found[key])
            for dep in deps:
                uses[dep] -= 1
                if not uses[dep]:
                    del found[dep]  # the tasks that need it hold references to it
        return found

    def follow(self) -> None:
        """Wait for the tasks one by one if diagnostics are active."""
        while self._pending:
            ready, _ = skate.wait(list(self._pending), num_returns=1)
            for ref in ready:
                self._diagnostics.finished(self._pending.pop(ref), ref)

    def _submit(self, key: Key, deps: dict[Key, Any], uses: int) -> Any:
        node = self._graph[key]
        if isinstance(node, Alias):
            return deps[node.target]
        if isinstance(node, DataNode):
            is_shared = uses > 1 and not isinstance(node.value, skate.ObjectRef)
            return skate.put(node.value) if is_shared else node.value
        for hook in self._hooks.ray_presubmit_cbs:
            result = hook(node, key, deps)
            if result is not None:
                return result
        in_task = list(zip(self._hooks.ray_pretask_cbs, self._hooks.ray_posttask_cbs, strict=True))
        ref = _run_node.options(**{"name": f"dask:{key}", **self._options[key]}).remote(
            node,
            tuple(deps),
            in_task,
            list(deps.values()) if in_task else None,
            *deps.values(),
            *dict.fromkeys(refs_in(node)),
        )
        for hook in self._hooks.ray_postsubmit_cbs:
            hook(node, key, deps, ref)
        if self._diagnostics:
            self._pending[ref] = key
            self._diagnostics.submitted(key)
        return ref


@skate.remote
def _run_node(
    node: Node,
    dep_keys: tuple[Key, ...],
    hooks: list[tuple[Callable[..., Any] | None, Callable[..., Any] | None]],
    dep_refs: list[Any] | None,
    *values: Any,
) -> Any:
    """Run one node of a graph; `values` are those of `dep_keys`, then those of the references in it."""
    deps = dict(zip(dep_keys, values, strict=False))
    inner = dict(zip(dict.fromkeys(refs_in(node)), values[len(dep_keys) :], strict=True))
    states = [before(node.key, dep_refs) if before else None for before, _ in hooks]
    result = (substitute_values(node, inner) if inner else node)(deps)
    for (_, after), state in zip(hooks, states, strict=True):
        if after:
            after(node.key, result, state)
    return result


def _with_progress_bar(active: list[RayCallback], wish: bool | None) -> list[RayCallback]:
    has_one = any(
        isinstance(getattr(each.ray_postsubmit_all, "__self__", None), ProgressBarCallback) for each in active
    )
    return [*active, ProgressBarCallback()._ray_callback] if wish and not has_one else active


def _flatten(keys: Any) -> Iterable[Key]:
    if isinstance(keys, list):
        for each in keys:
            yield from _flatten(each)
    else:
        yield keys


def _nest(keys: Any, found: dict[Key, Any]) -> Any:
    return tuple(_nest(each, found) for each in keys) if isinstance(keys, list) else found[keys]


def _values_of(found: dict[Key, Any]) -> dict[Key, Any]:
    """Return the mapping with references replaced by their values."""
    refs = {key: value for key, value in found.items() if isinstance(value, skate.ObjectRef)}
    return {**found, **dict(zip(refs, skate.get(list(refs.values())), strict=True))}


class Diagnostics:
    """Report the progress of the tasks of one graph to dask's callbacks.

    Args:
        callbacks: Tuples of the five hooks, as created by `dask.callbacks.Callback`.
    """

    def __init__(self, callbacks: Iterable[tuple[Any, ...]]) -> None:
        self._callbacks = [callback for callback in callbacks if any(callback)]
        self._graph: Mapping[Key, Node] = {}
        # The parts of the state of dask's local scheduler that callbacks use.
        self.state: dict[str, Any] = {
            "waiting": {},
            "ready": [],
            "running": set(),
            "finished": set(),
            "released": set(),
            "cache": {},
        }

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def start(self, graph: dict[Key, Any]) -> None:
        """Report the start. A callback may replace nodes of the graph, as dask's cache does."""
        self._graph = graph
        for start, *_ in self._callbacks:
            if start:
                start(graph)
        for _, start_state, *_ in self._callbacks:
            if start_state:
                start_state(graph, self.state)

    def submitted(self, key: Key) -> None:
        """Report that a task was submitted."""
        self.state["running"].add(key)
        for _, _, pretask, *_ in self._callbacks:
            if pretask:
                pretask(key, self._graph, self.state)

    def finished(self, key: Key, result: Any) -> None:
        """Report that a task has finished."""
        self.state["running"].discard(key)
        self.state["finished"].add(key)
        for _, _, _, posttask, _ in self._callbacks:
            if posttask:
                posttask(key, result, self._graph, self.state, None)

    def end(self, *, failed: bool) -> None:
        """Report the end, successful or not."""
        for *_, finish in self._callbacks:
            if finish:
                finish(self._graph, self.state, failed)
