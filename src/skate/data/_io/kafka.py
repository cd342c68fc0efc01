"""Bounded datasource and datasink for Kafka topics."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from skate.air import _optional
from skate.data._block import rows
from skate.data.block import BlockMetadata
from skate.data.datasource.datasink import Datasink, TaskContext
from skate.data.datasource.datasource import Datasource, ReadTask

_logger = logging.getLogger(__name__)

# Seconds to wait for a reply about topics and offsets.
_REPLY_TIMEOUT_S = 10
# Seconds to wait for messages before the deadline is checked again.
_CONSUME_TIMEOUT_S = 10
_MESSAGES_AT_A_TIME = 1_000
# Seconds to wait until a broker accepts messages.
_DELIVERY_TIMEOUT_S = 30
_MESSAGES_BETWEEN_POLLS = 10_000

SCHEMA = pa.schema(
    {
        "offset": pa.int64(),
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "timestamp": pa.int64(),
        "timestamp_type": pa.int32(),
        "headers": pa.map_(pa.string(), pa.binary()),
    }
)

Offset = int | datetime | str
Offsets = Offset | dict[str, dict[int, int | str]]


@dataclass
class KafkaAuthConfig:
    """Credentials under the names that kafka-python uses.

    Options without a counterpart in librdkafka raise a ValueError that names the setting of `consumer_config` to use.
    """

    security_protocol: str | None = None
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    sasl_kerberos_name: str | None = None
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_domain_name: str | None = None
    sasl_oauth_token_provider: Any = None
    ssl_context: Any = None
    ssl_check_hostname: bool | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = None
    ssl_ciphers: str | None = None
    ssl_crlfile: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return the equivalent settings of librdkafka.

        >>> KafkaAuthConfig(security_protocol="SSL", ssl_cafile="ca.pem").settings()
        {'security.protocol': 'SSL', 'ssl.ca.location': 'ca.pem'}
        """
        found = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.name not in _SETTINGS:
                raise ValueError(
                    f"{field.name} is unknown to librdkafka: pass consumer_config={{{_INSTEAD[field.name]!r}: …}}"
                )
            found[_SETTINGS[field.name]] = value
        return found


_SETTINGS = {
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "sasl_kerberos_name": "sasl.kerberos.principal",
    "sasl_kerberos_service_name": "sasl.kerberos.service.name",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
}
_INSTEAD = {
    "sasl_kerberos_domain_name": "sasl.kerberos.principal",
    "sasl_oauth_token_provider": "sasl.oauthbearer.config",
    "ssl_context": "ssl.ca.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
}


class KafkaDatasource(Datasource):
    """Read the messages of topics between two offsets, with one task per partition.

    Args:
        topics: One topic or a list of topics.
        bootstrap_servers: Brokers, as `host:port`.
        start_offset: The first message: an offset, a time, `"earliest"`, or offsets by topic and partition.
        end_offset: The end, exclusive: an offset, a time, `"latest"`, or offsets by topic and partition.
        kafka_auth_config: Credentials under the names that kafka-python uses.
        consumer_config: Settings of librdkafka.
        timeout_ms: How long a task waits for its messages; without limit by default.
    """

    def __init__(
        self,
        topics: str | list[str],
        bootstrap_servers: str | list[str],
        start_offset: Offsets = "earliest",
        end_offset: Offsets = "latest",
        kafka_auth_config: KafkaAuthConfig | None = None,
        consumer_config: dict[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        _kafka("read_kafka")
        if not topics:
            raise ValueError("topics is empty: pass at least one topic")
        if timeout_ms is not None and timeout_ms <= 0:
            raise ValueError(f"timeout_ms is {timeout_ms}: pass a positive number, or None")
        if kafka_auth_config is not None and consumer_config is not None:
            raise ValueError("pass kafka_auth_config or consumer_config, not both")
        _check_offsets("start_offset", start_offset, "latest")
        _check_offsets("end_offset", end_offset, "earliest")
        if type(start_offset) is type(end_offset) and isinstance(start_offset, int | datetime):
            first, last = _sort_key(start_offset), _sort_key(end_offset)
            if first > last:
                raise ValueError(
                    f"start_offset must be less than end_offset: {start_offset} is after {end_offset}"
                )
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._start, self._end = start_offset, end_offset
        self._timeout = None if timeout_ms is None else timeout_ms / 1000
        self._config = {
            "enable.auto.commit": False,
            "group.id": "skate-data",  # librdkafka requires one, although nothing is committed
            **(kafka_auth_config.settings() if kafka_auth_config is not None else {}),
            **(consumer_config or {}),
            "bootstrap.servers": _servers(bootstrap_servers),
        }

    def schema(self) -> pa.Schema | None:
        """Return the columns, which are the same for all topics."""
        return SCHEMA

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return one task per partition."""
        partitions = self._partitions()
        for name, given in (("start_offset", self._start), ("end_offset", self._end)):
            if isinstance(given, dict):
                unknown = {(topic, part) for topic in given for part in given[topic]} - set(partitions)
                if unknown:
                    raise ValueError(f"{name} names partitions that do not exist: {sorted(unknown)}")
        return [
            ReadTask(
                functools.partial(
                    _read,
                    self._config,
                    (topic, partition),
                    _offset_of(self._start, topic, partition, "earliest"),
                    _offset_of(self._end, topic, partition, "latest"),
                    self._timeout,
                ),
                BlockMetadata(
                    num_rows=None,
                    size_bytes=None,
                    input_files=[f"kafka://{topic}/{partition}"],
                    exec_stats=None,
                ),
                SCHEMA,
                per_task_row_limit,
            )
            for topic, partition in partitions
        ]

    def _partitions(self) -> list[tuple[str, int]]:
        consumer = _kafka("read_kafka").Consumer(self._config)
        try:
            known = consumer.list_topics(timeout=_REPLY_TIMEOUT_S).topics
        finally:
            consumer.close()
        found = []
        for topic in self._topics:
            if topic not in known or not known[topic].partitions:
                raise ValueError(f"the topic {topic} does not exist, or has no partitions")
            found += [(topic, partition) for partition in sorted(known[topic].partitions)]
        return found


def _read(
    config: dict[str, Any], place: tuple[str, int], start: Offset, end: Offset, timeout: float | None
) -> Iterator[pa.Table]:
    kafka = _kafka("read_kafka")
    consumer = kafka.Consumer(config)
    try:
        first, stop = _resolve_range(kafka, consumer, place, start, end)
        consumer.assign([kafka.TopicPartition(*place, first)])
        deadline = None if timeout is None else time.monotonic() + timeout
        while first < stop:
            left = (
                _CONSUME_TIMEOUT_S
                if deadline is None
                else min(deadline - time.monotonic(), _CONSUME_TIMEOUT_S)
            )
            if left <= 0:
                _logger.warning(
                    "after %s s, messages %d to %d of topic %s, partition %d did not arrive and are skipped",
                    timeout,
                    first,
                    stop - 1,
                    *place,
                )
                return
            got = consumer.consume(num_messages=min(stop - first, _MESSAGES_AT_A_TIME), timeout=left)
            messages = [message for message in got if not _is_end(kafka, message)]
            found = [_row(message) for message in messages if message.offset() < stop]
            if found:
                yield pa.Table.from_pylist(found, schema=SCHEMA)
            # Offsets of compacted and transactional topics have gaps, and the last offset may hold no message.
            [position] = consumer.position([kafka.TopicPartition(*place)])
            first = max(first, position.offset, *(message.offset() + 1 for message in messages))
    finally:
        consumer.close()


def _resolve_range(
    kafka: Any, consumer: Any, place: tuple[str, int], start: Offset, end: Offset
) -> tuple[int, int]:
    """Return the first offset to read and the end, exclusive, limited to the offsets that the broker holds."""
    low, high = consumer.get_watermark_offsets(kafka.TopicPartition(*place), timeout=_REPLY_TIMEOUT_S)

    def resolve(offset: Offset) -> int:
        if offset in ("earliest", "latest"):
            return int(low if offset == "earliest" else high)
        if not isinstance(offset, datetime):
            return int(offset)
        asked = kafka.TopicPartition(*place, _milliseconds(offset))
        [answer] = consumer.offsets_for_times([asked], timeout=_REPLY_TIMEOUT_S)
        return int(answer.offset) if answer.offset >= 0 else int(high)

    first, stop = resolve(start), min(resolve(end), high)
    if first < low:
        _logger.warning(
            "topic %s, partition %d starts at offset %d: messages from offset %d have expired",
            *place,
            low,
            first,
        )
        first = low
    if first > stop:
        raise ValueError(
            f"start_offset {start} is offset {first} of topic {place[0]}, partition {place[1]}, and after end_offset "
            f"{end}, which is {stop}"
        )
    return first, stop


def _is_end(kafka: Any, message: Any) -> bool:
    """Return whether a message marks the end of a partition; raise any other error it reports."""
    error = message.error()
    if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
        raise kafka.KafkaException(error)
    return error is not None


def _row(message: Any) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    return {
        "offset": message.offset(),
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "timestamp": timestamp,
        "timestamp_type": kind,
        "headers": message.headers() or [],
    }


def _check_offsets(name: str, given: Offsets, impossible: str) -> None:
    if given == impossible:
        raise ValueError(f"{name} cannot be {impossible!r}")
    if not isinstance(given, dict):
        return
    for topic, offsets in given.items():
        if not isinstance(offsets, dict):
            raise ValueError(f"{name}[{topic!r}] must be a dict of offsets by partition, not {offsets!r}")
        for partition, offset in offsets.items():
            if not isinstance(partition, int):
                raise ValueError(
                    f"{name}[{topic!r}] keys must be integers, the partitions, not {partition!r}"
                )
            if offset == impossible:
                raise ValueError(f"{name}[{topic!r}][{partition}] cannot be {impossible!r}")


def _offset_of(given: Offsets, topic: str, partition: int, otherwise: str) -> Offset:
    return given.get(topic, {}).get(partition, otherwise) if isinstance(given, dict) else given


def _sort_key(offset: Any) -> int:
    return _milliseconds(offset) if isinstance(offset, datetime) else int(offset)


def _milliseconds(moment: datetime) -> int:
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _servers(given: str | list[str]) -> str:
    found = given.split(",") if isinstance(given, str) else list(given)
    wrong = [server for server in found if not isinstance(server, str) or ":" not in server]
    if wrong or not found:
        raise ValueError(f"bootstrap_servers is {given!r}: pass brokers as 'host:port'")
    return ",".join(found)


def _kafka(caller: str) -> Any:
    return _optional.load("confluent_kafka", caller, "confluent-kafka")


def _to_json(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return value.tolist()
    raise TypeError(
        f"{value!r} is not JSON serializable: convert the column, or pass another value_serializer"
    )


class Serializer(StrEnum):
    """Conversions of a row or its key to bytes."""

    JSON = "json"
    STRING = "string"
    BYTES = "bytes"

    def to_bytes(self, value: Any) -> bytes:
        """Convert a value to bytes.

        >>> Serializer.JSON.to_bytes({"a": 1}), Serializer.STRING.to_bytes(1), Serializer.BYTES.to_bytes(b"x")
        (b'{"a": 1}', b'1', b'x')
        """
        if self is Serializer.JSON:
            return json.dumps(value, default=_to_json).encode()
        return value if isinstance(value, bytes) and self is Serializer.BYTES else str(value).encode()


class KafkaDatasink(Datasink[int]):
    """Send one message per row.

    If a task fails, its retry sends all messages of the task again.

    Args:
        topic: The topic.
        bootstrap_servers: Brokers, as `host:port`.
        key_field: The column that holds the key of a message.
        key_serializer: Conversion of the key to bytes: "json", "string" or "bytes".
        value_serializer: Conversion of the row to bytes.
        producer_config: Settings of librdkafka.
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str,
        key_field: str | None = None,
        key_serializer: str = "string",
        value_serializer: str = "json",
        producer_config: dict[str, Any] | None = None,
    ) -> None:
        _kafka("write_kafka")
        known = [str(each) for each in Serializer]
        for name, given in (("key_serializer", key_serializer), ("value_serializer", value_serializer)):
            if given not in known:
                raise ValueError(f"{name} is {given!r}: use one of {known}")
        self._topic = topic
        self._key_field = key_field
        self._key, self._value = Serializer(key_serializer), Serializer(value_serializer)
        self._config = {**(producer_config or {}), "bootstrap.servers": _servers(bootstrap_servers)}

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> int:
        """Send the messages of one task and return their number.

        Raises:
            RuntimeError: The broker rejected messages, or did not accept them in time.
        """
        producer = _kafka("write_kafka").Producer(self._config)
        failures: list[Any] = []
        sent = 0
        for block in blocks:
            for row in rows.to_rows(block):
                self._send(producer, row, failures)
                sent += 1
                if sent % _MESSAGES_BETWEEN_POLLS == 0:
                    producer.poll(0)
        waiting = producer.flush(_DELIVERY_TIMEOUT_S)
        if failures:
            raise RuntimeError(
                f"{len(failures)} of {sent} messages could not be delivered to the topic {self._topic}: {failures[0]}"
            )
        if waiting:
            raise RuntimeError(
                f"{waiting} of {sent} messages did not reach the topic {self._topic} within {_DELIVERY_TIMEOUT_S} s: "
                f"check that a broker runs at {self._config['bootstrap.servers']}"
            )
        return sent

    def _send(self, producer: Any, row: dict[str, Any], failures: list[Any]) -> None:
        key = None if self._key_field is None else row.get(self._key_field)
        message = {
            "value": self._value.to_bytes(row),
            "key": None if key is None else self._key.to_bytes(key),
            "on_delivery": lambda error, _: failures.append(error) if error is not None else None,
        }
        try:
            producer.produce(self._topic, **message)
        except BufferError:  # the queue is full: wait for room once
            producer.poll(_DELIVERY_TIMEOUT_S)
            producer.produce(self._topic, **message)
