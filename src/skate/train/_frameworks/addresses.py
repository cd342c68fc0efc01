"""Addresses of workers, and ports that stay reserved until a framework listens on them."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skate.util._interfaces import LOOPBACK

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

# The range from which the operating system chooses ports.
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _END = 10_000, 65_536  # lower ports belong to well-known services
_TRIES = 64

_held: list[socket.socket] = []  # open until the process ends


def hosts(worker_group: WorkerGroup) -> list[str]:
    """Return the address of each worker, by rank: the loopback address if all are on one node, for security."""
    found = [member.location for member in worker_group.members]
    if len({where.node_id for where in found}) == 1:
        return [LOOPBACK] * len(found)
    return [where.node_ip for where in found]


def hold(host: str) -> int:
    """Return a free port, reserved until this process ends, for a server that allows SO_REUSEPORT, such as gRPC.

    The operating system chooses the port, so there is no race. The socket that reserves it does not listen, and so gets
    no connections.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((host, 0))
    _held.append(holder)
    port: int = holder.getsockname()[1]
    return port


def claim() -> int:
    """Return a free port for a server that does not allow SO_REUSEPORT, and so cannot use a held port.

    The port is outside the range from which the operating system chooses. An abstract Unix socket, which disappears
    with this process, keeps other workers from choosing the same one.

    Raises:
        OSError: No port was free.
    """
    choices = _unassigned_ports()
    port: int
    # Workers are forks of one process, and would draw the same numbers from Python's default generator.
    for port in random.SystemRandom().sample(choices, min(_TRIES, len(choices))):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0skate-port-{port}")
            with socket.socket() as free:
                free.bind(("", port))
        except OSError:
            name.close()
            continue
        _held.append(name)
        return port
    raise OSError(
        f"no free port: {_TRIES} of {len(choices)} ports outside the system's ephemeral range are all in use"
    )


def _unassigned_ports() -> Sequence[int]:
    low, high = map(int, _EPHEMERAL_RANGE.read_text().split())
    return [*range(_FIRST, low), *range(high + 1, _END)] or range(_FIRST, _END)
