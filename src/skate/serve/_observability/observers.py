"""Observers, which log, measure and trace the requests of a replica, or set up logs and traces of a process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skate._api import tracing, variables
from skate.serve._observability.access_log import AccessLog
from skate.serve._observability.logs import Component, ServeLogs
from skate.serve._observability.metrics import (
    DurationHistogram,
    EventLoopMonitor,
    MetricsBuffer,
    counter,
    gauge,
    histogram,
)
from skate.serve._observability.options import ObservabilityOptions, set_options
from skate.serve._runtime.engine import shares_process
from skate.serve._runtime.ids import ReplicaID
from skate.serve._wire.frames import Call, Http, Rpc
from skate.util._metrics_store import Family

if TYPE_CHECKING:
    from skate.serve._observability.hooks import ServedRequest
    from skate.serve._observability.tracing import Tracer

__all__ = ["CANCELLED", "ProcessObserver", "ReplicaObserver"]

_REQUESTS = counter("deployment_request_counter", "Requests answered by replicas.")
_ERRORS = counter("deployment_error_counter", "Requests that raised an error.")
_LATENCY = histogram("deployment_processing_latency_ms", "Processing time of requests in replicas.")
_STARTS = counter("deployment_replica_starts", "Started replicas.")
_HEALTHY = gauge("deployment_replica_healthy", "1 while the replica is healthy, 0 otherwise.")
_RUNNING = gauge("replica_processing_queries", "Ongoing requests of a replica.")
_STARTING = histogram("replica_initialization_latency_ms", "Time that replicas took to start.")
_CHANGING = histogram(
    "replica_reconfigure_latency_ms", "Time that replicas took to apply a new `user_config`."
)
_CHECKING = histogram("health_check_latency_ms", "Duration of health checks.")
_MEASURING = histogram("user_autoscaling_stats_latency_ms", "Duration of `record_autoscaling_stats`.")
_UNMEASURED = counter("record_autoscaling_stats_failed", "Failed calls of `record_autoscaling_stats`.")
_FAILED_CHECKS = counter("health_check_failures", "Failed health checks.")

CANCELLED = 499
"""The status of a cancelled request."""


class ReplicaObserver:
    """Observe the requests of one replica, with metrics under Ray Serve's names. On the replica's event loop.

    Args:
        id: The replica.
        options: The logging and tracing options of Serve.
        logging: The fields of the deployment's own `LoggingConfig`, or None.
        load: Returns the number of ongoing requests.
    """

    def __init__(
        self,
        id: ReplicaID,
        options: ObservabilityOptions,
        logging: dict[str, Any] | None,
        load: Callable[[], int],
    ) -> None:
        deployment = id.deployment_id
        self._labels = {
            "deployment": deployment.name,
            "replica": id.unique_id,
            "application": deployment.app_name,
        }
        # Rare events do not create a series per replica.
        self._deployment_labels = {name: self._labels[name] for name in ("deployment", "application")}
        self._load = load
        self._options = options
        self._ended: dict[str, DurationHistogram] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._checks = DurationHistogram()
        self._failed_checks = 0
        self._buffer = MetricsBuffer(
            self._flush, EventLoopMonitor("replica", self._deployment_labels).record_lag
        )
        self._logs: ServeLogs | None = None
        self._access: AccessLog | None = None
        self.tracer = _hooked_tracer()
        self._shows_clients = variables.flag("SERVE_LOG_CLIENT_ADDRESS", False)
        if shares_process():
            return  # the program owns the logger and the traces
        component = Component("replica", id)
        self._logs = ServeLogs(component)
        self._access = AccessLog(self._logs)
        self.configure(logging)
        if options.tracing is not None:
            from skate.serve._observability.tracing import set_up

            self.tracer = set_up(component, options)

    def configure(self, logging: dict[str, Any] | None) -> None:
        """Apply another logging configuration."""
        if self._logs is not None and self._access is not None:
            self._access.reset()
            self._logs.configure(logging or self._options.logging)

    def started(self, seconds: float) -> None:
        """Record the time that the replica took to start."""
        self._buffer.increment(_STARTS, self._labels, 1)
        self._observe_once(_STARTING, seconds)
        self._buffer.set(_HEALTHY, self._labels, 1)
        self._buffer.set(_RUNNING, self._labels, 0)
        if self._logs is not None:
            self._logs.log_to_file(f"Started after {seconds * 1000:.1f}ms.")

    def reconfigured(self, seconds: float) -> None:
        """Record the time that the replica took to apply a new `user_config`."""
        self._observe_once(_CHANGING, seconds)

    def _observe_once(self, family: Family, seconds: float) -> None:
        durations = DurationHistogram()
        durations.add(seconds)
        self._buffer.add_histogram(family, self._deployment_labels, durations.reset()[1])

    def checked(self, seconds: float, is_healthy: bool) -> None:
        """Record the result of a health check."""
        self._checks.add(seconds)
        self._failed_checks += not is_healthy
        self._buffer.set(_HEALTHY, self._labels, float(is_healthy))
        self._buffer.schedule_flush()

    @contextmanager
    def measure_autoscaling_stats(self) -> Iterator[None]:
        """Measure a call of `record_autoscaling_stats`."""
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            self._buffer.increment(_UNMEASURED, {**self._labels, "exception_name": _type_name(error)}, 1)
            raise
        finally:
            durations = DurationHistogram()
            durations.add(time.perf_counter() - began)
            self._buffer.add_histogram(_MEASURING, self._labels, durations.reset()[1])

    def began(self) -> None:
        """Count a request that began."""
        if not self._buffer.is_scheduled:
            self._buffer.schedule_flush()

    def ended(self, running: ServedRequest, frame: Call | Http | Rpc) -> None:
        """Record a request that ended."""
        seconds = time.perf_counter() - running.began
        context = running.context
        durations = self._ended.get(context.route)
        if durations is None:
            durations = self._ended[context.route] = DurationHistogram()
        durations.add(seconds)
        if running.error is not None:
            key = (context.route, _type_name(running.error))
            self._errors[key] = self._errors.get(key, 0) + 1
        if not self._buffer.is_scheduled:
            self._buffer.schedule_flush()
        if self._logs is not None and self._logs.access_is_on:
            self._log(self._logs, running, frame, seconds)

    def _log(self, logs: ServeLogs, running: ServedRequest, frame: Call | Http | Rpc, seconds: float) -> None:
        """Write a line to the access log."""
        context, access = running.context, self._access
        assert access is not None, "there is one where there are logs"
        is_cancelled = running.status == CANCELLED
        if isinstance(frame, Http):
            if not logs.logs_access:
                return
            method = frame.scope.method if frame.scope.type == "http" else "WS"
            status = str(running.status or (500 if running.error is not None else 200))
            client = frame.scope.client if self._shows_clients else None
            address = "" if client is None else f" {client[0]}:{client[1]}"
            access.add(context.request_id, context.route, method, context.route, status, seconds, address)
        elif running.error is not None and not is_cancelled:
            logs.log_failure(f"CALL {frame.method} ERROR {seconds * 1000:.1f}ms", running.error)
        elif logs.logs_access:
            status = "CANCELLED" if is_cancelled else "OK"
            access.add(context.request_id, context.route, "CALL", frame.method, status, seconds)

    def close(self) -> None:
        """Flush the metrics, and close logs and traces."""
        self._buffer.flush()
        if self._access is not None and self._logs is not None:
            self._access.write()
            self._logs.close()
        if self.tracer is not None:
            self.tracer.close()

    def _flush(self) -> None:
        buffer, labels = self._buffer, self._labels
        for route, durations in self._ended.items():
            number, buckets = durations.reset()
            if number:
                named = {**labels, "route": route}
                buffer.increment(_REQUESTS, named, number)
                buffer.add_histogram(_LATENCY, named, buckets)
        errors, self._errors = self._errors, {}
        for (route, kind), number in errors.items():
            buffer.increment(_ERRORS, {**labels, "route": route, "exception_type": kind}, number)
        checks, buckets = self._checks.reset()
        if checks:
            buffer.add_histogram(_CHECKING, labels, buckets)
            buffer.increment(_FAILED_CHECKS, labels, self._failed_checks)
            self._failed_checks = 0
        running = self._load()
        buffer.set(_RUNNING, labels, running)
        if running:
            buffer.schedule_flush()  # long requests cause no other flush


def _type_name(error: BaseException) -> str:
    """Return the type name of the user's error, which may have been wrapped."""
    return type(getattr(error, "cause", None) or error).__name__


def _hooked_tracer() -> Tracer | None:
    """Return a tracer with the provider of the program's startup hook; None without one."""
    if tracing.tracer() is None:
        return None
    from skate.serve._observability.tracing import use_program_provider

    return use_program_provider()


class ProcessObserver:
    """Set up logs and traces of a controller or proxy process, unless it shares the program's process.

    Args:
        kind: "controller" or "proxy".
        options: The logging and tracing options of Serve.
    """

    def __init__(self, kind: str, options: ObservabilityOptions) -> None:
        self.tracer = _hooked_tracer() if kind == "proxy" else None
        self._logs: ServeLogs | None = None
        set_options(options)
        if shares_process():
            return  # the program owns the logger and the traces
        component = Component(kind, str(os.getpid()))
        self._logs = ServeLogs(component)
        self._logs.configure(options.logging)
        if options.tracing is not None and kind == "proxy":
            from skate.serve._observability.tracing import set_up

            self.tracer = set_up(component, options)

    def close(self) -> None:
        """Close logs and traces."""
        if self.tracer is not None:
            self.tracer.close()
        if self._logs is not None:
            self._logs.close()
