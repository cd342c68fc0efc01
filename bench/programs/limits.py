"""What the machine itself allows: sockets between two Python processes, copies, forks."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import meter
import numpy as np

BATCH = 1000
LARGE = 100_000_000
HEADER = struct.Struct("<I")

job = meter.Job()


def child(serve: Callable[[socket.socket], None]) -> socket.socket:
    """Fork a process that serves one end of a socket pair, and return the other end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if os.fork() == 0:
        try:
            ours.close()
            serve(theirs)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def echo(connection: socket.socket) -> None:
    while data := connection.recv(4096):
        connection.sendall(data)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Cut whole frames off the front of `data`."""
    frames, at = [], 0
    while len(data) - at >= HEADER.size:
        (size,) = HEADER.unpack_from(data, at)
        if len(data) - at - HEADER.size < size:
            break
        frames.append(data[at + HEADER.size : at + HEADER.size + size])
        at += HEADER.size + size
    return frames, data[at:]


def frame(value: object) -> bytes:
    body = pickle.dumps(value, protocol=5)
    return HEADER.pack(len(body)) + body


def answer(connection: socket.socket) -> None:
    rest = b""
    while data := connection.recv(1 << 16):
        frames, rest = split(rest + data)
        connection.sendall(b"".join(frame((pickle.loads(f)[0], b"ok")) for f in frames))


def ping_pong() -> float:
    """One small message there and back, then the next."""
    connection = child(echo)
    message = b"x" * 64

    def step() -> None:
        for _ in range(100):
            connection.sendall(message)
            connection.recv(4096)

    return job.rate(step, 100)


def stream() -> float:
    """A thousand framed, pickled messages out at once and as many answers back, nothing else done to them."""
    connection = child(answer)

    def step() -> None:
        waiting, rest = BATCH, b""
        # All of it fits the sockets' buffers, so neither side waits for the other to read.
        connection.sendall(b"".join([frame((i, "answer", (), {})) for i in range(BATCH)]))
        while waiting:
            frames, rest = split(rest + connection.recv(1 << 16))
            waiting -= len([pickle.loads(f) for f in frames])

    return job.rate(step, BATCH)


def memcpy_warm() -> float:
    """Copy into the same shared memory again and again."""
    source = np.ones(LARGE, dtype=np.uint8)
    segment = shared_memory.SharedMemory(create=True, size=LARGE)
    try:
        return copy_rate(source, segment)
    finally:
        segment.close()
        segment.unlink()


def copy_rate(source: Any, segment: shared_memory.SharedMemory) -> float:
    # In a function of its own: a segment cannot be closed while an array looks at it.
    target = np.frombuffer(segment.buf, dtype=np.uint8, count=LARGE)
    return job.rate(lambda: np.copyto(target, source), LARGE / 1e9)


def memcpy_cold() -> float:
    """Copy into fresh shared memory: the kernel has to find and clear every page first."""
    source = np.ones(LARGE, dtype=np.uint8)
    copied, elapsed = 0, 0.0
    while elapsed < job.seconds:
        segment = shared_memory.SharedMemory(create=True, size=LARGE)
        target = np.frombuffer(segment.buf, dtype=np.uint8, count=LARGE)
        start = time.perf_counter()
        np.copyto(target, source)
        elapsed += time.perf_counter() - start
        copied += LARGE
        del target
        segment.close()
        segment.unlink()
    return copied / 1e9 / elapsed


def ten_forks() -> float:
    """Fork ten processes and hear from each."""

    def create(count: int) -> None:
        connections = [child(echo) for _ in range(count)]
        for connection in connections:
            connection.sendall(b"x")
        for connection in connections:
            connection.recv(1)

    return job.once(lambda: create(1), lambda: create(10))


if __name__ == "__main__":
    job.run(ping_pong, stream, memcpy_warm, memcpy_cold, ten_forks)
