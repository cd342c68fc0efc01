"""The publisher: which subscribers get which updates, and which acknowledge them."""

from __future__ import annotations

import asyncio
from typing import Any

from skate.serve._controller.pubsub import Publisher
from skate.serve._wire.frames import Frame, Subscribe, Update, acknowledgement_key


class Wire:
    """Stands for the link to a process that has connected."""

    def __init__(self, publisher: Publisher) -> None:
        self.sent: list[Frame] = []
        self.receive: Any = None
        self.closed: Any = None
        publisher.handle_connection(self)  # type: ignore[arg-type]  # as much of a link as the publisher needs

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)

    def says(self, frame: Frame) -> None:
        self.receive(self, frame)


def make() -> tuple[Publisher, list[Update]]:
    heard: list[Update] = []
    return Publisher(lambda _, news: heard.append(news), lambda _: None), heard


async def test_subscribers_are_told_the_newest_value_at_once_and_each_one_after_it() -> None:
    publisher, _ = make()
    publisher.publish("routes", b"1")
    process = Wire(publisher)
    process.says(Subscribe("routes"))
    publisher.publish("routes", b"2")
    publisher.publish("routes", b"2")
    assert process.sent == [Update("routes", b"1"), Update("routes", b"2")]


async def test_a_value_is_seen_when_the_last_subscriber_has_confirmed_it() -> None:
    publisher, heard = make()
    first, second = Wire(publisher), Wire(publisher)
    for process in (first, second):
        process.says(Subscribe("routes"))
    publisher.publish("routes", b"1")
    waiting = asyncio.ensure_future(publisher.wait_until_acknowledged("routes"))
    first.says(Update(acknowledgement_key("routes"), b"1"))
    second.says(Update(acknowledgement_key("routes"), b"0"))  # one that it was told before
    await asyncio.sleep(0)
    assert not waiting.done()
    second.says(Update(acknowledgement_key("routes"), b"1"))
    async with asyncio.timeout(10):
        await waiting
    assert heard == []  # the publisher handles acknowledgements itself


async def test_nobody_waits_for_a_process_that_has_gone() -> None:
    publisher, _ = make()
    process = Wire(publisher)
    process.says(Subscribe("routes"))
    publisher.publish("routes", b"1")
    waiting = asyncio.ensure_future(publisher.wait_until_acknowledged("routes"))
    await asyncio.sleep(0)
    process.closed(process)
    async with asyncio.timeout(10):
        await waiting


async def test_what_nobody_is_told_is_seen() -> None:
    publisher, _ = make()
    publisher.publish("routes", b"1")
    async with asyncio.timeout(10):
        await publisher.wait_until_acknowledged("routes")


async def test_what_a_process_measured_is_passed_on() -> None:
    publisher, heard = make()
    process = Wire(publisher)
    process.says(Update("load", b"3"))
    assert heard == [Update("load", b"3")]
