"""Dask's own callbacks: its progress bar, profilers and cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from skate.util.dask._graph import Key, Node

__all__ = ["Diagnostics"]


class Diagnostics:
    """Tell dask's callbacks what happens to the tasks of one graph.

    Args:
        callbacks: Tuples of the five hooks, as `dask.callbacks.Callback` makes them.
    """

    def __init__(self, callbacks: Iterable[tuple[Any, ...]]) -> None:
        self._callbacks = [callback for callback in callbacks if any(callback)]
        self._graph: Mapping[Key, Node] = {}
        # The parts of the state of dask's local scheduler that callbacks look at.
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
        """Begin. A callback may replace nodes of the graph, as dask's cache does."""
        self._graph = graph
        for start, *_ in self._callbacks:
            if start:
                start(graph)
        for _, start_state, *_ in self._callbacks:
            if start_state:
                start_state(graph, self.state)

    def submitted(self, key: Key) -> None:
        """Note that a task is on its way."""
        self.state["running"].add(key)
        for _, _, pretask, *_ in self._callbacks:
            if pretask:
                pretask(key, self._graph, self.state)

    def finished(self, key: Key, result: Any) -> None:
        """Note that a task is done."""
        self.state["running"].discard(key)
        self.state["finished"].add(key)
        for _, _, _, posttask, _ in self._callbacks:
            if posttask:
                posttask(key, result, self._graph, self.state, None)

    def end(self, *, failed: bool) -> None:
        """End, well or not."""
        for *_, finish in self._callbacks:
            if finish:
                finish(self._graph, self.state, failed)
