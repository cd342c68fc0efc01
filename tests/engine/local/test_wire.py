from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from skate._engine.local.wire import messages as m
from skate._engine.local.wire.frames import Closed, Connection, encode_frame, pack, unpack


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Connection]]:
    left, right = socket.socketpair()
    ends = Connection(left), Connection(right)
    yield ends
    for end in ends:
        end.close()


def test_messages_arrive_in_order_and_equal(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    sent = [m.Hold([b"a", b"b"]), m.Done(b"t", [m.Result(1, b"value")], 1.5), m.Recall()]
    for message in sent:
        sender.post(message)
    assert sender.flush()
    assert receiver.receive() == sent


def test_nothing_is_returned_before_something_arrives(pair: tuple[Connection, Connection]) -> None:
    assert pair[1].receive() == []


def test_a_frame_that_arrives_in_pieces_is_put_together(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    frame = encode_frame([m.Release([b"x" * 28])])
    got = []
    for position in range(len(frame)):
        sender.sock.send(frame[position : position + 1])
        got += receiver.receive()
    assert got == [m.Release([b"x" * 28])]


def test_frames_that_arrive_together_are_taken_apart(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    frames = [encode_frame([m.Cancel(bytes([i]))]) for i in range(5)]
    sender.sock.send(b"".join(frames) + frames[0][:3])
    assert [message.task for message in receiver.receive()] == [bytes([i]) for i in range(5)]
    sender.sock.send(frames[0][3:])
    assert receiver.receive() == [m.Cancel(b"\0")]


def test_a_receiver_that_limits_the_bytes_gets_the_rest_later(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    sent = [m.Release([bytes([number]) * 28]) for number in range(10)]
    for message in sent:
        sender.send(message)
    size = len(encode_frame(sent[:1]))
    assert receiver.receive(3 * size) == sent[:3]
    assert receiver.receive(size + 1) == sent[3:4]
    assert receiver.receive() == sent[4:]


def test_a_full_socket_keeps_the_rest_for_later(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    big = m.Export(b"key", b"c" * 5_000_000)
    sender.post(big)
    assert not sender.flush()
    assert sender.backlog > 0
    got = []
    while not got:
        got = receiver.receive()
        sender.flush()
    assert got == [big]
    assert sender.backlog == 0


def test_the_end_of_the_stream_is_told(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    sender.send(m.Recall())
    sender.close()
    assert receiver.receive() == [m.Recall()]
    with pytest.raises(Closed):
        receiver.receive()


def test_writing_to_a_closed_peer_is_told(pair: tuple[Connection, Connection]) -> None:
    sender, receiver = pair
    receiver.close()
    with pytest.raises(Closed):
        sender.send(m.Recall())


def test_plain_data_survives_packing() -> None:
    value = {"a": [1, 2.5, None, b"x", "y"], "b": {"c": True}}
    assert unpack(pack(value)) == value
