"""Kafka, with the broker that librdkafka has for tests in this process."""

from __future__ import annotations

import datetime
import json
import sys
import types
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import skate
from skate.data._io import kafka
from skate.data._io.kafka import KafkaAuthConfig, KafkaDatasink, KafkaDatasource
from tests import leaks
from tests.conftest import LeakWatch
from tests.data.io.support import blocks, read_rows, write

FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def producer() -> Any:
    library = pytest.importorskip("confluent_kafka")
    made = library.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
    for number in range(10):
        made.produce(
            "numbers",
            key=str(number).encode(),
            value=f"value {number}".encode(),
            partition=number % 2,
            timestamp=FIRST_MS + number * 1000,
            headers=[("n", bytes([number]))],
        )
    assert made.flush(30) == 0
    return made


@pytest.fixture(scope="module")
def server(producer: Any, leak_watch: LeakWatch) -> str:
    [broker] = producer.list_topics(timeout=30).brokers.values()
    leak_watch.before = leaks.Snapshot.take()  # the broker lives as long as the module
    return f"{broker.host}:{broker.port}"


def test_a_partition_is_read_by_a_task(server: str) -> None:
    source = KafkaDatasource("numbers", server)
    parts = [each for each in blocks(source) if each.num_rows]
    assert [set(part["partition"].to_pylist()) for part in parts] == [{0}, {1}]
    assert [part["value"].to_pylist()[0] for part in parts] == [b"value 0", b"value 1"]
    assert {part.schema for part in parts} == {source.schema()}
    assert parts[1].slice(1, 1).to_pylist() == [
        {
            "offset": 1,
            "key": b"3",
            "value": b"value 3",
            "topic": "numbers",
            "partition": 1,
            "timestamp": FIRST_MS + 3000,
            "timestamp_type": 1,
            "headers": [("n", b"\x03")],
        }
    ]


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        ({"numbers": {0: 3, 1: 3}}, "latest", "6789"),
        (0, 2, "0213"),
        ({"numbers": {0: 1, 1: 1}}, 99, "2468" + "3579"),
        ({"numbers": {1: 3}}, {"numbers": {0: 1, 1: "latest"}}, "0" + "79"),
    ],
)
def test_offsets_choose_messages(server: str, start: Any, end: Any, found: str) -> None:
    keys = [row["key"].decode() for row in read_rows(KafkaDatasource(["numbers"], [server], start, end))]
    assert sorted(keys) == sorted(found)


class Place(NamedTuple):
    """A partition of a topic, and an offset or a time in it."""

    topic: str
    partition: int
    offset: int = 0


class Times:
    """A consumer that knows the times of messages, which the broker for tests does not: one each second."""

    def get_watermark_offsets(self, place: Place, timeout: float) -> tuple[int, int]:
        return 2, 10

    def offsets_for_times(self, places: list[Place], timeout: float) -> list[Place]:
        return [
            place._replace(offset=number if number < 10 else -1)
            for place in places
            for number in [-(-(place.offset - FIRST_MS) // 1000)]
        ]


@pytest.mark.parametrize("zone", [None, datetime.UTC])
def test_times_are_offsets_of_the_first_message_at_or_after_them(zone: datetime.timezone | None) -> None:
    def after(seconds: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(FIRST_MS / 1000 + seconds, datetime.UTC).replace(tzinfo=zone)

    library = types.SimpleNamespace(TopicPartition=Place)

    def found(start: Any, end: Any) -> tuple[int, int]:
        return kafka._resolve_range(library, Times(), ("numbers", 0), start, end)

    assert found(after(3.5), after(6)) == (4, 6)
    assert found(after(3), after(60)) == (3, 10)
    assert found(after(60), "latest") == (10, 10)
    assert found(0, 5) == (2, 5)  # what has expired is left out
    with pytest.raises(ValueError, match=r"after end_offset"):
        found(after(5), after(3))


@pytest.mark.usefixtures("session")
def test_rows_are_sent_and_read_back(producer: Any, server: str) -> None:
    rows = [{"id": number, "name": "x"} for number in range(3)]
    skate.data.from_items(rows).write_kafka("sent", server, key_field="id")
    found = skate.data.read_kafka("sent", bootstrap_servers=server, timeout_ms=30_000).take_all()
    assert sorted((row["key"], row["value"]) for row in found) == [
        (str(row["id"]).encode(), json.dumps(row).encode()) for row in rows
    ]


def test_messages_that_no_broker_takes_are_an_error() -> None:
    pytest.importorskip("confluent_kafka")
    sink = KafkaDatasink("t", "127.0.0.1:1", producer_config={"message.timeout.ms": 50, "log_level": 0})
    with pytest.raises(RuntimeError, match=r"1 of 1 messages could not be delivered to the topic t"):
        write(sink, pa.table({"a": [1]}))


def test_a_topic_or_a_partition_that_is_missing_is_named(server: str) -> None:
    with pytest.raises(ValueError, match=r"topic nosuch does not exist"):
        KafkaDatasource("nosuch", server).get_read_tasks(1)
    with pytest.raises(ValueError, match=r"start_offset names partitions.*\('numbers', 99\)"):
        KafkaDatasource("numbers", server, {"numbers": {99: 0}}).get_read_tasks(1)
    with pytest.raises(ValueError, match=r"offset 4 of topic numbers.*end_offset 1"):
        read_rows(KafkaDatasource("numbers", server, {"numbers": {0: 4}}, {"numbers": {0: 1}}))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"topics": []}, "topics is empty"),
        ({"bootstrap_servers": "localhost"}, "host:port"),
        ({"timeout_ms": 0}, "timeout_ms is 0"),
        ({"start_offset": "latest"}, "start_offset cannot be 'latest'"),
        ({"end_offset": {"t": {0: "earliest"}}}, r"end_offset\['t'\]\[0\] cannot be 'earliest'"),
        ({"start_offset": {"t": {"zero": 1}}}, r"start_offset\['t'\] keys must be integers"),
        ({"start_offset": {"t": 5}}, "dict of offsets by partition"),
        ({"start_offset": 5, "end_offset": 4}, r"start_offset must be less than end_offset: 5 is after 4"),
        ({"kafka_auth_config": KafkaAuthConfig(), "consumer_config": {}}, "not both"),
    ],
)
def test_options_are_checked(options: dict[str, Any], match: str) -> None:
    pytest.importorskip("confluent_kafka")
    with pytest.raises(ValueError, match=match):
        KafkaDatasource(**{"topics": "t", "bootstrap_servers": "h:1", **options})


def test_credentials_of_another_client_are_translated_or_refused() -> None:
    config = KafkaAuthConfig(security_protocol="SASL_SSL", sasl_plain_username="me")
    assert config.settings() == {"security.protocol": "SASL_SSL", "sasl.username": "me"}
    with pytest.raises(ValueError, match=r"ssl_check_hostname.*ssl\.endpoint\.identification\.algorithm"):
        KafkaAuthConfig(ssl_check_hostname=False).settings()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ImportError, match=r"read_kafka needs confluent-kafka: pip install confluent-kafka"):
        skate.data.read_kafka("t", bootstrap_servers="h:1")
    with pytest.raises(ImportError, match=r"write_kafka needs confluent-kafka"):
        KafkaDatasink("t", "h:1")
