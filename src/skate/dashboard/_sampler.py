"""The history of the machine and the session: one sample a second, for the last ten minutes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

import psutil
from starlette.datastructures import QueryParams

from skate._api import observer as observers
from skate.dashboard._gpus import Gpus
from skate.dashboard._node import Node
from skate.dashboard._topics import Problem

__all__ = ["Sampler"]

INTERVAL_S: Final = 1.0
SAMPLES: Final = 600
COUNT_INTERVAL_S: Final = 5.0  # of an engine whose tables have to be counted

logger = logging.getLogger(__name__)


class Sampler:
    """Samples the usage of the machine and the counts of the node.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._gpus = Gpus()
        self._times: deque[float] = deque(maxlen=SAMPLES)
        self._series: dict[str, deque[float | None]] = {
            name: deque(maxlen=SAMPLES) for name in ("cpu", "memory", "object_store", "running")
        }
        self._gpu_series: list[dict[str, deque[float]]] = [
            {"utilization": deque(maxlen=SAMPLES), "memory": deque(maxlen=SAMPLES)} for _ in self._gpus.names
        ]
        self._memory_limit = int(psutil.virtual_memory().total)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sample."""
        psutil.cpu_percent(None)  # the first result has nothing to compare with
        self._task = asyncio.create_task(self._run(), name="dashboard sampler")

    async def close(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._gpus.close()

    async def _run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(INTERVAL_S)

    async def sample(self) -> None:
        """Take one sample; the node's part is null while there is no node."""
        summary = None
        try:
            summary = await self.summary()
        except Problem:
            logger.debug("The node is not sampled", exc_info=True)
        usage = observers.memory_usage()
        used = None
        if usage is not None:
            used, self._memory_limit = float(usage.used), usage.total
        self._times.append(time.time())
        store = None if summary is None else float(summary["store"]["used"])
        running = None if summary is None else float(summary["tasks"].get("RUNNING", 0))
        for name, value in (
            ("cpu", psutil.cpu_percent(None)),
            ("memory", used),
            ("object_store", store),
            ("running", running),
        ):
            self._series[name].append(value)
        for series, (utilization, memory) in zip(self._gpu_series, self._gpus.read(), strict=True):
            series["utilization"].append(utilization)
            series["memory"].append(memory)

    async def summary(self) -> dict[str, Any] | None:
        """Return the counts of the node, at most a second old; None if its engine does not count."""
        return await self._node.share("summary", lambda: self._node.ask(lambda node: node.summary()))

    def history(self) -> dict[str, Any]:
        """Return the samples."""
        return {
            "time": list(self._times),
            **{name: list(values) for name, values in self._series.items()},
            "memory_limit": self._memory_limit,
            "gpu": [
                {
                    "index": index,
                    "name": name,
                    "memory_limit": limit,
                    **{key: list(values) for key, values in series.items()},
                }
                for index, (name, limit, series) in enumerate(
                    zip(self._gpus.names, self._gpus.limits, self._gpu_series, strict=True)
                )
            ],
        }

    async def overview(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        """Return the topic /state/overview."""
        # Actors report their calls when they are asked, and the node counts them.
        calls = await self._node.share(
            "calls", lambda: self._node.ask(lambda node: node.task_events(0, 0, 0))
        )
        summary = await self.summary()
        if summary is None:
            summary = await self._node.share(
                "rows counted", lambda: self._node.ask(lambda node: node.count_rows()), COUNT_INTERVAL_S
            )
        tasks = Counter(summary.get("tasks", {}))
        tasks.update((calls or {}).get("unfinished_calls", {}))
        store = summary.get("store")  # None for a Ray cluster, which does not report it
        total, available = summary.get("total", {}), summary.get("available", {})
        return {
            "resources": [
                {"name": name, "total": amount, "used": max(0.0, amount - available.get(name, 0.0))}
                for name, amount in sorted(total.items())
            ],
            "tasks": tasks,
            "calls": (calls or {}).get("unfinished_calls", {}),
            "actors": summary.get("actors", {}),
            "workers": summary.get("workers", 0),
            "waiting": [{**row, "id": row["id"].hex()} for row in summary.get("waiting", [])],
            "object_store": None
            if store is None
            else {
                "used": store["used"],
                "limit": store["budget"],
                "spilled": store["spilled_bytes"],
                "objects": store["objects"],
            },
            "history": self.history(),
        }
