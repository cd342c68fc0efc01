"""The brokers of taskiq by name, and how each takes the name of its queue."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from skate.air._optional import load

__all__ = ["BROKERS", "new_broker"]

_ADAPTER = "TaskiqTaskProcessorAdapter"


@dataclass(frozen=True, slots=True)
class BrokerKind:
    """A class of brokers.

    Attributes:
        module: The module that defines it.
        name: Name of the class.
        package: The package to install.
        queue: The parameter for the name of the queue.
        required: Parameters that have no default.
    """

    module: str
    name: str
    package: str
    queue: str = "queue_name"
    required: tuple[str, ...] = ()


def _redis(name: str, *required: str) -> BrokerKind:
    return BrokerKind("taskiq_redis", name, "taskiq-redis", required=required or ("url",))


BROKERS: Final = {
    "redis_stream": _redis("RedisStreamBroker"),
    "redis_list": _redis("ListQueueBroker"),
    "redis_pubsub": _redis("PubSubBroker"),
    "redis_stream_cluster": _redis("RedisStreamClusterBroker"),
    "redis_list_cluster": _redis("ListQueueClusterBroker"),
    "redis_stream_sentinel": _redis("RedisStreamSentinelBroker", "sentinels", "master_name"),
    "redis_list_sentinel": _redis("ListQueueSentinelBroker", "sentinels", "master_name"),
    "redis_pubsub_sentinel": _redis("PubSubSentinelBroker", "sentinels", "master_name"),
    "rabbitmq": BrokerKind("taskiq_aio_pika", "AioPikaBroker", "taskiq-aio-pika"),
    "nats": BrokerKind("taskiq_nats", "PullBasedJetStreamBroker", "taskiq-nats", "subject", ("servers",)),
    "kafka": BrokerKind(
        "taskiq_aio_kafka", "AioKafkaBroker", "taskiq-aio-kafka", "kafka_topic", ("bootstrap_servers",)
    ),
}


def new_broker(kind: str, queue: str, options: Mapping[str, Any], result_backend_url: str | None) -> Any:
    """Return a broker that is not connected yet.

    Args:
        kind: A key of `BROKERS`, or the import path of a class.
        queue: Name of the queue.
        options: Further arguments of the class.
        result_backend_url: URL of the Redis server that keeps results.

    Raises:
        ImportError: A package is missing; the error names it.
        ValueError: The kind is unknown, or a required argument is missing.
    """
    known = BROKERS.get(kind)
    if known is None:
        broker = _import(kind)(**{**options, "queue_name": queue})
    else:
        missing = [name for name in known.required if name not in options]
        if missing:
            raise ValueError(f"broker_kwargs of the broker {kind!r} lacks {missing}")
        module = load(known.module, f"the broker {kind!r} of {_ADAPTER}", known.package)
        broker = getattr(module, known.name)(**{**options, **_queue_argument(known, module, queue)})
    if result_backend_url is not None:
        results = load("taskiq_redis", f"result_backend_url of {_ADAPTER}", "taskiq-redis")
        broker = broker.with_result_backend(results.RedisAsyncResultBackend(result_backend_url))
    return broker


def _queue_argument(kind: BrokerKind, module: Any, queue: str) -> dict[str, Any]:
    if kind.module == "taskiq_aio_pika" and hasattr(module, "Queue"):  # since version 0.5
        return {"task_queues": [module.Queue(name=queue)]}
    return {kind.queue: queue}


def _import(path: str) -> Any:
    separator = ":" if ":" in path else "."
    module, _, name = path.rpartition(separator)
    if not module:
        raise ValueError(
            f"broker_type is {path!r}: use one of {', '.join(BROKERS)}, or the import path of a class"
        )
    return getattr(importlib.import_module(module), name)
