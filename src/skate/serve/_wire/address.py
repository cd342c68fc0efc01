"""Where a process of Serve can be reached, and what to know to be let in."""

from __future__ import annotations

import functools
import secrets
from pathlib import Path

import msgspec

__all__ = ["Address", "machine_id", "new_secret"]


class Address(msgspec.Struct, frozen=True):
    """The sockets of one listener.

    It travels through actor calls alone, never over these sockets: whoever knows the secret may call.
    """

    machine: str
    path: str  # of a unix socket; a leading NUL means that it lies in no folder, and so leaves nothing behind
    secret: bytes
    host: str | None = None  # for processes on other machines
    port: int = 0

    @property
    def is_local(self) -> bool:
        """Whether this process runs on the listener's machine."""
        return self.machine == machine_id()


@functools.cache
def machine_id() -> str:
    """Return what tells this machine, or container, from others: sockets without a folder reach just as far."""
    network = Path("/proc/self/ns/net")
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{boot.read_text().strip()}/{network.readlink()}" if boot.exists() else "this"


def new_secret() -> bytes:
    """Return what a caller has to know."""
    return secrets.token_bytes(32)
