"""Links between the processes of Serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from skate.serve._runtime.loop import new_event_loop
from skate.serve._wire import Address, Link, Listener, connect
from skate.serve._wire.frames import Call, Context, Frame, Reply
from skate.serve._wire.link import LinkClosed
from skate.serve._wire.window import Window


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = new_event_loop()
    try:
        loop.run_until_complete(asyncio.wait_for(main(), 30))
    finally:
        loop.close()


def nothing(link: Link, frame: Frame) -> None:
    raise AssertionError(f"nobody sends {frame}")


async def echoing(host: str | None = None) -> tuple[Listener, Address]:
    """Listen, and answer every call with its own arguments."""

    def opened(link: Link) -> None:
        def answer(link: Link, frame: Frame) -> None:
            assert isinstance(frame, Call)
            link.send(Reply(frame.id, 0, frame.args))

        link.receive = answer

    listener = Listener(opened, lambda: {"says": "hello"}, host)
    return listener, await listener.open()


@pytest.mark.parametrize("machine", ["this", "another"])
def test_frames_arrive_whole_and_in_order(machine: str) -> None:
    async def main() -> None:
        listener, address = await echoing("127.0.0.1")
        if machine == "another":
            address = msgspec.structs.replace(address, machine="far away")
        heard: list[Reply] = []
        all_heard = asyncio.Event()
        sizes = [0, 1, 70_000, 3, 5_000_000, 12, *([9] * 500)]

        def receive(link: Link, frame: Frame) -> None:
            assert isinstance(frame, Reply)
            heard.append(frame)
            if len(heard) == len(sizes):
                all_heard.set()

        link = await connect(address, receive, name="me")
        assert link.about == {"says": "hello"}
        for number, size in enumerate(sizes):
            link.send(Call(number, "m", Context("id"), bytes(size)))
        await all_heard.wait()
        assert [(frame.id, len(frame.value or b"")) for frame in heard] == list(enumerate(sizes))
        link.close()
        await listener.close()

    run(main)


def test_whoever_does_not_know_the_secret_is_not_let_in() -> None:
    async def main() -> None:
        listener, address = await echoing()
        with pytest.raises(LinkClosed):
            await connect(msgspec.structs.replace(address, secret=b"guess"), nothing)
        assert not listener.links
        await listener.close()

    run(main)


def test_nothing_is_taken_from_a_caller_that_has_not_proved_itself() -> None:
    async def main() -> None:
        listener, address = await echoing("127.0.0.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
        await reader.readexactly(4)
        writer.write(b"\x05\x00\x00\x00" + b"\x93\x0a\x01\xa1m")
        assert await reader.read() != b""  # the rest of the question
        assert await reader.read() == b""  # and then nothing: it was closed
        writer.close()
        await listener.close()

    run(main)


def test_a_listener_that_is_gone_is_an_error() -> None:
    async def main() -> None:
        listener, address = await echoing()
        await listener.close()
        with pytest.raises(LinkClosed):
            await connect(address, nothing)

    run(main)


def test_both_sides_learn_that_the_other_is_gone() -> None:
    async def main() -> None:
        listener, address = await echoing()
        gone = asyncio.Event()
        link = await connect(address, nothing, lambda _: gone.set())
        await listener.close()
        await gone.wait()
        assert not link.is_open
        link.send(Call(1, "m", Context("id"), b""))  # does nothing

    run(main)


def test_what_cannot_be_understood_closes_the_link(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        listener, address = await echoing()
        gone = asyncio.Event()
        link = await connect(address, nothing, lambda _: gone.set())
        assert link._transport is not None
        link._transport.write(b"\x03\x00\x00\x00abc")
        await gone.wait()
        await listener.close()

    run(main)
    assert "received an invalid frame" in caplog.text


def test_a_window_lets_a_sender_go_as_far_as_the_reader_grants() -> None:
    async def main() -> None:
        window = Window(2)
        taken = 0

        async def take_all() -> None:
            nonlocal taken
            for _ in range(5):
                await window.take()
                taken += 1

        task = asyncio.ensure_future(take_all())
        await asyncio.sleep(0)
        assert taken == 2
        window.grant(1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert taken == 3
        window.grant(2)
        await task
        assert taken == 5

    run(main)
