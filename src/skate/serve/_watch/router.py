"""What callers of a deployment measure: how many requests they send, and how long those wait for a replica."""

from __future__ import annotations

from collections.abc import Callable

from skate.serve._runtime.ids import DeploymentID
from skate.serve._watch.tally import Spread, Tallies, counter, gauge, histogram

__all__ = ["RouterMeasures"]

_REQUESTS = counter("num_router_requests", "Requests that callers have sent to a deployment.")
_CALLS = counter("handle_request_counter", "Requests that came through handles, and not over HTTP.")
_WAITED = histogram(
    "request_router_fulfillment_time_ms", "How long requests waited at their callers for a replica with room."
)
_QUEUED = gauge("deployment_queued_queries", "Requests that wait at callers for a replica with room.")
_ONGOING = gauge("num_ongoing_requests_at_replicas", "Requests that callers have sent and not seen answered.")


class RouterMeasures:
    """The metrics of one deployment's callers in this process, under the names that Ray Serve gives them.

    Args:
        id: The deployment.
        queued: Says how many requests wait here.
        ongoing: Says how many are at replicas.
    """

    def __init__(self, id: DeploymentID, queued: Callable[[], int], ongoing: Callable[[], int]) -> None:
        self._labels = {"deployment": id.name, "application": id.app_name}
        self._queued = queued
        self._ongoing = ongoing
        self._sent: dict[tuple[str, bool], int] = {}
        self._put_aside = 0
        self._waited = Spread()
        self._tallies = Tallies(self._fold)

    def sent(self, route: str, is_call: bool) -> None:
        """Note that a request is to be sent: now or, if none has room, later."""
        key = (route, is_call)
        self._sent[key] = self._sent.get(key, 0) + 1
        if not self._tallies.is_due:
            self._tallies.touch()

    def queued(self) -> None:
        """Note that a request which was to be sent has to wait."""
        self._put_aside += 1

    def waited(self, seconds: float) -> None:
        """Note how long a request waited that had to."""
        self._waited.add(seconds)
        if not self._tallies.is_due:
            self._tallies.touch()

    def close(self) -> None:
        """Add what was recorded last."""
        self._tallies.fold()

    def _fold(self) -> None:
        tallies = self._tallies
        sent, self._sent = self._sent, {}
        for (route, is_call), number in sent.items():
            labels = {**self._labels, "route": route}
            tallies.count(_REQUESTS, labels, number)
            if is_call:
                tallies.count(_CALLS, labels, number)
        at_once = sum(sent.values()) - self._put_aside
        self._put_aside = 0
        waited, cells = self._waited.take()
        cells[0] += at_once
        if waited or at_once:
            tallies.spread(_WAITED, self._labels, cells)
        queued, ongoing = self._queued(), self._ongoing()
        tallies.set(_QUEUED, self._labels, queued)
        tallies.set(_ONGOING, self._labels, ongoing)
        if queued or ongoing:
            tallies.touch()  # nothing else tells when they have become fewer
