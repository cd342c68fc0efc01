"""Where the workers of a run meet: their addresses, and ports that nobody else takes before a framework does."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skate.util._interfaces import LOOPBACK

if TYPE_CHECKING:
    from skate.train._workers.group import WorkerGroup

# The range from which the operating system chooses by itself.
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _END = 10_000, 65_536  # what lies below belongs to well-known services
_TRIES = 64

_kept: list[socket.socket] = []  # for as long as the process lives


def hosts(worker_group: WorkerGroup) -> list[str]:
    """Return the address of each worker, by rank: the loopback where all are on one node, so that nobody comes in."""
    found = [member.whereabouts for member in worker_group.members]
    if len({where.node_id for where in found}) == 1:
        return [LOOPBACK] * len(found)
    return [where.node_ip for where in found]


def hold(host: str) -> int:
    """Return a free port that stays ours until this process ends, for a server that shares its port, as gRPC's do.

    The operating system chooses it, so that there is no race. What holds it does not listen: it gets no connection.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind((host, 0))
    _kept.append(holder)
    port: int = holder.getsockname()[1]
    return port


def claim() -> int:
    """Return a free port for a server that shares its port with nobody, and so cannot take one that is held.

    The operating system hands it out to no one, because it is outside of the range that it chooses from. A name in the
    kernel, which goes when this process ends, keeps other workers from choosing it.

    Raises:
        OSError: No port was free.
    """
    choices = _handed_to_nobody()
    port: int
    # Workers are copies of one process: they would draw the same numbers from Python's own generator.
    for port in random.SystemRandom().sample(choices, min(_TRIES, len(choices))):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0skate-port-{port}")
            with socket.socket() as free:
                free.bind(("", port))
        except OSError:
            name.close()
            continue
        _kept.append(name)
        return port
    raise OSError(
        f"{_TRIES} of {len(choices)} ports that the system hands to nobody were tried, and none is free"
    )


def _handed_to_nobody() -> Sequence[int]:
    low, high = map(int, _HANDED_OUT.read_text().split())
    return [*range(_FIRST, low), *range(high + 1, _END)] or range(_FIRST, _END)
