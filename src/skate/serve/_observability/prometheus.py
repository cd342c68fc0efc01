"""Queries to a Prometheus server for autoscaling policies."""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skate._api import variables

ADDRESS_VARIABLE = "PROMETHEUS_HOST"
HEADERS_VARIABLE = "PROMETHEUS_HEADERS"
FETCH_INTERVAL_S = 5.0
CACHE_TTL_S = 15.0
QUERY_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrometheusSample:
    """One sample of a vector, with its labels."""

    labels: Mapping[str, str]
    value: float
    timestamp: float


@dataclass(frozen=True)
class PrometheusScalar:
    """The result of a query for one number."""

    value: float
    timestamp: float


@dataclass(frozen=True)
class PrometheusVector:
    """The result of a query for a vector of samples, which may be empty."""

    samples: tuple[PrometheusSample, ...]


PrometheusQueryResult = PrometheusScalar | PrometheusVector


class PrometheusQueryMixin:
    """A base class of autoscaling policies that use metrics from a Prometheus server.

    `prometheus_results` and `prometheus_metrics` never wait for the network. A background thread queries the server
    from the first read until the policy is garbage-collected. Both are None without a recent result; `prometheus_error`
    gives the reason.

    Args:
        prometheus_address: The address of the server, such as `http://localhost:9090`. Defaults to the variable
            `SKATE_PROMETHEUS_HOST` (or `RAY_…`). `SKATE_PROMETHEUS_HEADERS` sets request headers, as JSON.
        prometheus_queries: PromQL expressions.
        fetch_interval_s: Seconds between queries.
        cache_ttl_s: The longest time in seconds that a result is used.
        **kwargs: For other base classes.

    Example:
        >>> from skate.serve.autoscaling_policy import PrometheusQueryMixin
        >>> class ByBacklog(PrometheusQueryMixin):
        ...     def __init__(self, **kwargs):
        ...         super().__init__(prometheus_queries=["sum(backlog)"], **kwargs)
        ...     def __call__(self, ctx):
        ...         backlog = (self.prometheus_metrics or {}).get("sum(backlog)")
        ...         return (ctx.target_num_replicas if backlog is None else backlog / 10), {}
    """

    def __init__(
        self,
        *,
        prometheus_address: str | None = None,
        prometheus_queries: Sequence[str] | None = None,
        fetch_interval_s: float = FETCH_INTERVAL_S,
        cache_ttl_s: float = CACHE_TTL_S,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        address = prometheus_address or variables.text(ADDRESS_VARIABLE)
        self._query_thread = _QueryThread(
            None if not address else _query_url(address),
            tuple(prometheus_queries or ()),
            _headers(variables.text(HEADERS_VARIABLE)),
            fetch_interval_s,
        )
        self._cache_ttl_s = cache_ttl_s

    @property
    def prometheus_results(self) -> dict[str, PrometheusQueryResult] | None:
        """The latest results by query, or None."""
        if not self._query_thread.is_started:
            self._query_thread.start()
            # The thread does not reference the policy, so that it ends with the policy.
            weakref.finalize(self, self._query_thread.stop)
        return self._query_thread.recent_results(self._cache_ttl_s)

    @property
    def prometheus_metrics(self) -> dict[str, float] | None:
        """The latest results that are a single number, by query, or None."""
        single = {query: _only_value(result) for query, result in (self.prometheus_results or {}).items()}
        return {query: value for query, value in single.items() if value is not None} or None

    @property
    def prometheus_error(self) -> str | None:
        """The error of the latest query, or None."""
        return self._query_thread.error


class _QueryThread:
    """The latest results, and the thread that queries the server."""

    def __init__(
        self, url: str | None, queries: tuple[str, ...], headers: dict[str, str], interval: float
    ) -> None:
        self._url = url
        self._queries = queries
        self._headers = headers
        self._interval = interval
        self._results: dict[str, PrometheusQueryResult] = {}
        self._at: float | None = None
        self._stopped = threading.Event()
        self.is_started = False
        self.error: str | None = None

    def start(self) -> None:
        """Start the query thread."""
        self.is_started = True
        if self._url is None or not self._queries:
            self.error = f"Set prometheus_queries, and prometheus_address or SKATE_{ADDRESS_VARIABLE}."
            return
        threading.Thread(target=self._run, name="serve-prometheus", daemon=True).start()

    def stop(self) -> None:
        """Stop the query thread."""
        self._stopped.set()

    def recent_results(self, max_age_s: float) -> dict[str, PrometheusQueryResult] | None:
        """Return the results unless they are too old."""
        if self._at is None or time.monotonic() - self._at > max_age_s:
            return None
        return dict(self._results)

    def _run(self) -> None:
        while True:
            self._refresh()
            if self._stopped.wait(self._interval):
                return

    def _refresh(self) -> None:
        results, failed = {}, None
        for query in self._queries:
            try:
                results[query] = self._query(query)
            except (OSError, ValueError) as error:
                failed = f"{query!r}: {error}"
        if failed is not None and self.error is None:
            logger.warning("The Prometheus query failed: %s", failed)
        self.error = failed
        if results:
            self._results, self._at = results, time.monotonic()

    def _query(self, query: str) -> PrometheusQueryResult:
        url = f"{self._url}?{urllib.parse.urlencode({'query': query})}"
        request = urllib.request.Request(url, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=QUERY_TIMEOUT_S) as response:
                return parse_response(json.load(response))
        except urllib.error.HTTPError as error:
            with error:  # the error owns the connection
                said = error.read(500).decode(errors="replace")
            raise ValueError(f"status {error.code}: {said}") from None


def parse_response(answer: Any) -> PrometheusQueryResult:
    """Parse the server's response.

    Raises:
        ValueError: If it is not a response to an instant query for numbers.
    """
    match answer:
        case {"status": "success", "data": {"resultType": "scalar", "result": [at, value]}}:
            return PrometheusScalar(value=float(value), timestamp=float(at))
        case {"status": "success", "data": {"resultType": "vector", "result": [*samples]}}:
            return PrometheusVector(tuple(_sample(each) for each in samples))
        case {"status": "error"}:
            raise ValueError(str(answer.get("error")))
    raise ValueError(f"expected a scalar or a vector, got {str(answer)[:200]}")


def _sample(sample: Any) -> PrometheusSample:
    match sample:
        case {"metric": dict() as labels, "value": [at, value]}:
            return PrometheusSample(labels=labels, value=float(value), timestamp=float(at))
    raise ValueError(f"expected a sample with labels and a value, got {str(sample)[:200]}")


def _only_value(result: PrometheusQueryResult) -> float | None:
    match result:
        case PrometheusScalar(value=value) | PrometheusVector(samples=(PrometheusSample(value=value),)):
            return value
    return None


def _query_url(address: str) -> str:
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"prometheus_address must start with http:// or https://, got {address!r}.")
    return f"{address.rstrip('/').removesuffix('/api/v1/query')}/api/v1/query"


def _headers(text: str | None) -> dict[str, str]:
    if not text:
        return {}
    try:
        given = json.loads(text)
        pairs = given.items() if isinstance(given, dict) else given
        return {str(name): str(value) for name, value in pairs}
    except (TypeError, ValueError):
        raise ValueError(
            f'SKATE_{HEADERS_VARIABLE} must be JSON such as {{"Authorization": "Bearer ..."}}, or a list of pairs.'
        ) from None
