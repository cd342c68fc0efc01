"""Metrics of all libraries: the text for Prometheus, and values for other topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from skate.dashboard._node import Node
from skate.util import _session_metrics
from skate.util._metrics_export import CONTENT_TYPE, exposition
from skate.util._metrics_store import Series
from skate.util.metrics import PREFIX

__all__ = ["Metrics", "Rates", "Totals"]

MIN_SPAN_S: Final = 3.0  # of a rate: processes write their metrics every second or two


class Metrics:
    """Reads the metrics that the processes of the session have recorded in files.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def series(self) -> list[Series]:
        """Return what the libraries have recorded, at most a second old."""
        return await self._node.share("metrics", self._read)

    async def _read(self) -> list[Series]:
        session = self._node.session
        return [] if session is None else await self._node.run(_session_metrics.read_recorded, session)

    async def respond(self, _: Request) -> Response:
        """Answer GET /metrics."""
        text = exposition(await self._node.ask(_session_metrics.read_all), PREFIX)
        return Response(text.encode("utf-8", "replace"), media_type=CONTENT_TYPE)


class Totals:
    """Sums of the series of some metrics, by some of their tags.

    Args:
        series: The series of all metrics.
        tags: Names of the tags.
    """

    def __init__(self, series: Iterable[Series], *tags: str) -> None:
        self._found: dict[tuple[str, tuple[str, ...]], Series] = {}
        for one in series:
            values = dict(one.tags)
            key = one.family.name, tuple(values.get(tag, "") for tag in tags)
            known = self._found.get(key)
            if known is None:
                self._found[key] = Series(one.family, one.tags, list(one.values))
            else:
                known.values = [a + b for a, b in zip(known.values, one.values, strict=True)]

    def value(self, name: str, *tags: str) -> float:
        """Return the value of a counter or gauge; 0 if it was not recorded."""
        found = self._found.get((name, tags))
        return 0.0 if found is None else found.values[0]

    def histogram(self, name: str, *tags: str) -> tuple[list[float], list[float]] | None:
        """Return the boundaries and the counts of a histogram; None if it was not recorded."""
        found = self._found.get((name, tags))
        return None if found is None else (list(found.family.boundaries), found.values[:-1])

    def tags_of(self, name: str) -> list[tuple[str, ...]]:
        """Return the tags with which a metric was recorded."""
        return [tags for family, tags in self._found if family == name]


class Rates:
    """The change of totals per second, over the last few seconds.

    Args:
        clock: Returns the time in seconds.
        window_s: The seconds that a rate covers.
    """

    def __init__(self, clock: Callable[[], float], window_s: float = 10.0) -> None:
        self._clock = clock
        self._window_s = window_s
        self._samples: list[tuple[float, Mapping[Any, float]]] = []

    def add(self, totals: Mapping[Any, float]) -> Mapping[Any, float] | None:
        """Add the current totals; return the rate of each, or None before there is something to compare them with."""
        now = self._clock()
        self._samples.append((now, dict(totals)))
        while len(self._samples) > 2 and now - self._samples[1][0] >= self._window_s:
            del self._samples[0]
        then, before = self._samples[0]
        passed = now - then
        if passed < MIN_SPAN_S:
            return None
        return defaultdict(
            float, {key: max(0.0, total - before.get(key, 0.0)) / passed for key, total in totals.items()}
        )
