"""The network interfaces of this machine, and the one on which collective libraries listen."""

from __future__ import annotations

import os

import psutil

import skate
from skate.util.node import LOOPBACK

__all__ = ["LOOPBACK", "bind_collectives", "interface_of", "node_address"]


def node_address() -> str:
    """Return the address by which other nodes reach this one; the loopback address if there are none."""
    here = skate.get_runtime_context().get_node_id()
    return next((str(row["NodeManagerAddress"]) for row in skate.nodes() if row["NodeID"] == here), LOOPBACK)


def interface_of(host: str) -> str | None:
    """Return the name of the interface that has an address; None if none has it, as behind address translation."""
    for name, found in psutil.net_if_addrs().items():
        if any(each.address == host for each in found):
            return name
    return None


def bind_collectives(host: str) -> None:
    """Restrict gloo, nccl and tensorpipe in this process to the interface of an address.

    Variables that the user set take precedence. By default, gloo listens on the address that the host name resolves
    to, and nccl on an interface that other machines can reach.
    """
    if (name := interface_of(host)) is None:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    os.environ.setdefault("TP_SOCKET_IFNAME", name)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # "=" requires an exact match instead of a prefix
