"""Defaults of Serve's options, enumerated options, and the marker of an option that was not given."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final

from skate._api import variables


class DEFAULT(Enum):
    """Marks an option that was not given, where None is a valid value."""

    VALUE = 1


APP_NAME = "default"

# Loopback: a program must set another host to accept requests from other machines.
HTTP_HOST = variables.text("SERVE_DEFAULT_HTTP_HOST") or "127.0.0.1"
HTTP_PORT = 8000
GRPC_PORT = 9000
KEEP_ALIVE_TIMEOUT_S = variables.integer("SERVE_HTTP_KEEP_ALIVE_TIMEOUT_S", 90, at_least=1)

NUM_REPLICAS = 1
MAX_ONGOING_REQUESTS = 5
MAX_QUEUED_REQUESTS = -1  # no limit
GRACEFUL_SHUTDOWN_WAIT_LOOP_S = 2.0
GRACEFUL_SHUTDOWN_TIMEOUT_S = 20.0
HEALTH_CHECK_PERIOD_S = 10.0
HEALTH_CHECK_TIMEOUT_S = 30.0
MAX_CONSTRUCTOR_RETRY_COUNT = 20
ROLLING_UPDATE_PERCENTAGE = 0.2
MAX_SURGE_PERCENT = 0
REPLICA_NUM_CPUS = 1
MAX_REPLICAS_PER_NODE_LIMIT = 100

BACKPRESSURE_STATUS_CODE: Final = 503

TARGET_ONGOING_REQUESTS = 2.0
AUTO_MAX_REPLICAS = 100  # of num_replicas="auto"
METRICS_INTERVAL_S = 10.0
LOOK_BACK_PERIOD_S = 30.0
UPSCALE_DELAY_S = 30.0
DOWNSCALE_DELAY_S = 600.0
AUTOSCALING_POLICY = "skate.serve.autoscaling_policy:default_autoscaling_policy"

REQUEST_ROUTER = "skate.serve.request_router:PowerOfTwoChoicesRequestRouter"
ROUTING_STATS_PERIOD_S = 10.0
ROUTING_STATS_TIMEOUT_S = 30.0
ROUTER_INITIAL_BACKOFF_S = 0.025
ROUTER_BACKOFF_MULTIPLIER = 2.0
ROUTER_MAX_BACKOFF_S = 0.5

MAX_BATCH_SIZE = 10
BATCH_WAIT_TIMEOUT_S = 0.01
MAX_CONCURRENT_BATCHES = 1

CONSUMER_CONCURRENCY = 5
TASK_PROCESSOR = "skate.serve.task_processor.CeleryTaskProcessorAdapter"
TRACING_SAMPLING_RATIO = 0.01


class AggregationFunction(StrEnum):
    """How to aggregate the measurements of the look-back period."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"


class ProxyLocation(StrEnum):
    """Where proxies run, which accept HTTP and gRPC requests."""

    Disabled = "Disabled"
    HeadOnly = "HeadOnly"
    EveryNode = "EveryNode"

    @classmethod
    def _normalize(cls, location: ProxyLocation | str | None) -> ProxyLocation | None:
        """Return the location for a user's value; `NoServer` is a deprecated name of `Disabled`."""
        if location is None or isinstance(location, ProxyLocation):
            return location
        if not isinstance(location, str):
            raise TypeError(f"Must be a `ProxyLocation` or str, got: {type(location)} ({location!r}).")
        if location == "NoServer":
            return cls.Disabled
        try:
            return cls(location)
        except ValueError:
            words = ", ".join(repr(each.value) for each in cls)
            raise ValueError(f"{location!r} is not a valid ProxyLocation: use one of {words}.") from None


class GangPlacementStrategy(StrEnum):
    """How to place the replicas of a gang on nodes."""

    PACK = "PACK"
    SPREAD = "SPREAD"


class GangRuntimeFailurePolicy(StrEnum):
    """What to restart when a running replica of a gang fails."""

    RESTART_GANG = "RESTART_GANG"
    RESTART_REPLICA = "RESTART_REPLICA"
