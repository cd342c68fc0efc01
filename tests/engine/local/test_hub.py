from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Connection
from skate._engine.local.wire.hub import BATCH, Hub


class End:
    """A hub with one connection, and the plain socket at its other end."""

    def __init__(self) -> None:
        mine, its = socket.socketpair()
        self.peer = Connection(its)
        self.connection = Connection(mine)
        self.got: list[Any] = []
        self.readers: list[int] = []
        self.closed = threading.Event()
        self.hub = Hub(self._messages, lambda _: self.closed.set(), lambda: None)
        self.hub.add(self.connection)

    def _messages(self, _: Connection, messages: list[Any]) -> None:
        self.got += messages
        self.readers.append(threading.get_ident())


@pytest.fixture
def end() -> Iterator[End]:
    end = End()
    yield end
    end.hub.close()
    end.peer.close()


def test_who_waits_reads_by_itself(end: End) -> None:
    end.hub.start_thread()
    ready = threading.Event()

    def answer() -> None:
        ready.wait()
        end.peer.send(m.Recall())

    thread = threading.Thread(target=answer)
    thread.start()
    assert end.hub.attend(lambda: ready.set() or bool(end.got))
    thread.join()
    assert end.readers == [threading.get_ident()]


def test_a_thread_reads_when_nobody_waits(end: End) -> None:
    arrived = threading.Event()
    end.hub._on_messages = lambda *_: arrived.set()
    end.hub.start_thread()
    end.peer.send(m.Recall())
    assert arrived.wait(10)


def test_what_came_while_another_thread_was_reading_is_not_waited_for(end: End) -> None:
    end.hub.start_thread()
    looks = iter([False, True])
    # The first look fails, then the message is handled elsewhere, then this thread becomes the reader.
    assert end.hub.attend(lambda: next(looks))


def test_waiting_ends_when_time_is_up(end: End) -> None:
    assert not end.hub.attend(lambda: False, timeout=0.01)


def test_a_second_waiter_is_woken_by_the_first(end: End) -> None:
    end.hub.start_thread()
    waiting = threading.Barrier(3)
    done = []

    def wait(count: int) -> None:
        waiting.wait()
        done.append(end.hub.attend(lambda: len(end.got) >= count, 10))

    threads = [threading.Thread(target=wait, args=(count,)) for count in (1, 2)]
    for thread in threads:
        thread.start()
    waiting.wait()
    end.peer.send(m.Recall())
    end.peer.send(m.Recall())
    for thread in threads:
        thread.join()
    assert done == [True, True]


def test_a_burst_travels_in_few_frames_and_in_order(end: End) -> None:
    end.hub.start_thread()
    count = 10 * BATCH
    for index in range(count):
        end.hub.send(end.connection, m.Cancel(index.to_bytes(4, "big")))
    end.hub.send_held_back()
    got: list[Any] = []
    frames = 0
    while len(got) < count:
        arrived = end.peer.receive()
        frames += bool(arrived)
        got += arrived
    assert [message.task for message in got] == [index.to_bytes(4, "big") for index in range(count)]
    assert frames < count


def test_a_held_back_message_is_sent_though_nobody_waits(end: End) -> None:
    end.hub.start_thread()
    end.peer.sock.settimeout(10)
    end.hub.send(end.connection, m.Recall())
    end.hub.send(end.connection, m.Recall())
    got: list[Any] = []
    end.peer.sock.setblocking(True)
    while len(got) < 2:
        got += end.peer.receive()
    assert got == [m.Recall(), m.Recall()]


def test_a_closed_peer_is_told(end: End) -> None:
    end.peer.close()
    assert end.hub.attend(end.closed.is_set, 10)


def test_what_comes_just_before_a_thread_waits_is_not_missed(end: End) -> None:
    leading, over = threading.Event(), threading.Event()

    def lead() -> None:
        end.hub.attend(lambda: leading.set() or over.is_set())

    leader = threading.Thread(target=lead)
    leader.start()
    leading.wait()
    looks = iter([False])  # the second time, it is there: the leader has read it in between, and woke nobody
    waiter = threading.Thread(target=lambda: end.hub.attend(lambda: next(looks, True)), daemon=True)
    while end.hub._leader is None:  # nobody tells when a thread has taken the lead
        pass
    waiter.start()
    waiter.join(10)
    missed = waiter.is_alive()
    over.set()
    end.peer.send(m.Recall())  # wakes the leader
    leader.join()
    assert not missed


def test_a_thread_that_cannot_read_any_more_says_so_and_lets_others_read(end: End) -> None:
    class ClosedEpoll:
        def modify(self, *_: Any) -> None:
            raise OSError("Bad file descriptor")

    epoll = end.hub._back
    failed = threading.Event()

    def on_messages(_: Connection, messages: list[Any]) -> None:
        end.got += messages
        end.hub._back = ClosedEpoll()  # type: ignore[assignment]

    def on_fault() -> None:
        end.hub._back = epoll
        failed.set()

    end.hub._on_messages = on_messages
    end.hub.on_fault = on_fault
    end.hub.start_thread()
    end.peer.send(m.Recall())
    assert failed.wait(10)
    end.hub._on_messages = end._messages
    end.peer.send(m.Recall())
    assert end.hub.attend(lambda: len(end.got) == 2, 10)
