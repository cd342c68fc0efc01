"""What the proxy measures: how many requests came over HTTP or gRPC, how they ended, how long they took."""

from __future__ import annotations

from collections.abc import Callable

from skate.serve._watch.pulse import Pulse
from skate.serve._watch.tally import Spread, Tallies, counter, gauge, histogram

__all__ = ["ProxyMeasures"]

_OTHER = "OTHER"
# A client may call its method anything, and every name would be a series of its own.
_METHODS = frozenset(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "WEBSOCKET", _OTHER)
)
_FINE = frozenset(("1000", "1001", "OK"))  # of websockets, and of gRPC


class ProxyMeasures:
    """The metrics of one protocol, under the names that Ray Serve gives them.

    Args:
        protocol: "http" or "grpc".
        under_way: Says how many requests are being answered.
    """

    def __init__(self, protocol: str, under_way: Callable[[], int]) -> None:
        self._under_way = under_way
        self._takes_any_method = protocol == "grpc"
        self._requests = counter(f"num_{protocol}_requests", f"Requests over {protocol}.")
        self._errors = counter(f"num_{protocol}_error_requests", "Requests that ended with an error.")
        self._deployment_errors = counter(
            f"num_deployment_{protocol}_error_requests", "Requests that ended with an error, by deployment."
        )
        self._latency = histogram(
            f"{protocol}_request_latency_ms",
            "From a request's arrival at the proxy to the end of its response.",
        )
        self._ongoing = gauge(f"num_ongoing_{protocol}_requests", "Requests that are being answered.")
        self._ended: dict[tuple[str, str, str, str, int | str], Spread] = {}
        self._overhead = histogram(
            f"{protocol}_request_framework_latency_ms",
            "What Serve adds to a request: all but waiting for a replica, and the replica's time for it.",
        )
        self._passed_on: dict[tuple[str, str], Spread] = {}
        # All protocols have one loop: it is enough that one of them tells of it.
        beat = Pulse("proxy", {}).beat if protocol == "http" else None
        self._tallies = Tallies(self._fold, beat)

    def began(self) -> None:
        """Note that a request is being answered."""
        if not self._tallies.is_due:
            self._tallies.touch()

    def ended(
        self, app: str, deployment: str, route: str, method: str, status: int | str, seconds: float
    ) -> None:
        """Note how a request ended, and how long that took."""
        key = (app, deployment, route, method, status)
        spread = self._ended.get(key)
        if spread is None:
            if method not in _METHODS and not self._takes_any_method:
                self.ended(app, deployment, route, _OTHER, status, seconds)
                return
            spread = self._ended[key] = Spread()
        spread.add(seconds)
        if not self._tallies.is_due:
            self._tallies.touch()

    def passed_on(self, app: str, route: str, seconds: float) -> None:
        """Note what Serve has added to the time of a request, which has ended or is about to."""
        spread = self._passed_on.get((app, route))
        if spread is None:
            spread = self._passed_on[app, route] = Spread()
        spread.add(seconds)

    def close(self) -> None:
        """Add what was recorded last."""
        self._tallies.fold()

    def _fold(self) -> None:
        tallies = self._tallies
        under_way = self._under_way()
        tallies.set(self._ongoing, {}, under_way)
        if under_way:
            tallies.touch()  # nothing else tells that they take long
        for (app, route), spread in self._passed_on.items():
            number, cells = spread.take()
            if number:
                tallies.spread(self._overhead, {"application": app, "route": route}, cells)
        for (app, deployment, route, method, ending), spread in self._ended.items():
            number, cells = spread.take()
            if not number:
                continue
            status = str(ending)
            labels = {"application": app, "route": route, "method": method}
            tallies.count(self._requests, {**labels, "status_code": status}, number)
            tallies.spread(self._latency, {**labels, "status_code": status}, cells)
            if _is_error(status):
                tallies.count(self._errors, {**labels, "error_code": status}, number)
                if deployment:
                    named = {**labels, "error_code": status, "deployment": deployment}
                    tallies.count(self._deployment_errors, named, number)


def _is_error(status: str) -> bool:
    """Tell whether a request failed: statuses of HTTP, closing codes of websockets, names of gRPC.

    >>> [_is_error(status) for status in ("200", "404", "1000", "1011", "OK", "INTERNAL")]
    [False, True, False, True, False, True]
    """
    return status not in _FINE and not (len(status) == 3 and status[0] in "123")
