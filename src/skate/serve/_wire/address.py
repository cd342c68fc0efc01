"""The address and secret of a Serve process."""

from __future__ import annotations

import functools
import secrets
from pathlib import Path

import msgspec

__all__ = ["Address", "machine_id", "new_secret"]


class Address(msgspec.Struct, frozen=True):
    """The sockets of one listener.

    Actor calls carry addresses, and these sockets never do: a process that knows the secret may connect.
    """

    machine: str
    path: str  # of a Unix socket; a leading NUL means the abstract namespace, which leaves no file behind
    secret: bytes
    host: str | None = None  # for processes on other machines
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether this process runs on the listener's machine."""
        return self.machine == machine_id()


@functools.cache
def machine_id() -> str:
    """Return an identifier of this machine or container, within which abstract sockets are reachable."""
    network = Path("/proc/self/ns/net")
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{boot.read_text().strip()}/{network.readlink()}" if boot.exists() else "this"


def new_secret() -> bytes:
    """Return a new random secret."""
    return secrets.token_bytes(32)
