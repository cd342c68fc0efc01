"""Ports for frameworks: no other process gets them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from skate.train._frameworks import addresses

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def kept() -> Iterator[list[socket.socket]]:
    """The held sockets. Those of a test are closed after it, because the process continues with other tests."""
    before = list(addresses._held)
    yield addresses._held
    for each in addresses._held[len(before) :]:
        each.close()
    addresses._held[:] = before


def test_a_held_port_is_for_a_server_that_shares_it_and_for_no_other() -> None:
    port = addresses.hold("127.0.0.1")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("127.0.0.1", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            server.accept()[0].close()


def test_a_claimed_port_is_free_and_none_that_the_system_hands_out() -> None:
    low, high = map(int, addresses._EPHEMERAL_RANGE.read_text().split())
    port = addresses.claim()
    assert not low <= port <= high
    with socket.socket() as server:
        server.bind(("", port))


def test_no_two_workers_claim_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = addresses.claim()
    monkeypatch.setattr(addresses, "_unassigned_ports", lambda: [port])
    with pytest.raises(OSError, match="no free port"):
        addresses.claim()
    program = f"""
from skate.train._frameworks import addresses
addresses._unassigned_ports = lambda: [{port}]
try:
    addresses.claim()
except OSError:
    print("taken")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "taken\n"


def test_a_port_that_somebody_listens_on_is_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        port = taken.getsockname()[1]
        monkeypatch.setattr(addresses, "_unassigned_ports", lambda: [port])
        with pytest.raises(OSError, match="no free port"):
            addresses.claim()
