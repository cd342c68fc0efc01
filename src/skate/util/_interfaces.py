"""The network interfaces of this machine, and which of them collective libraries listen on."""

from __future__ import annotations

import os

import psutil

import skate

__all__ = ["LOOPBACK", "bind_collectives", "interface_of", "node_address"]

LOOPBACK = "127.0.0.1"


def node_address() -> str:
    """Return the address by which other nodes reach this one; the loopback where there are none."""
    here = skate.get_runtime_context().get_node_id()
    return next((str(row["NodeManagerAddress"]) for row in skate.nodes() if row["NodeID"] == here), LOOPBACK)


def interface_of(host: str) -> str | None:
    """Return the name of the interface that has an address; None if none has, as behind a translation of addresses."""
    for name, found in psutil.net_if_addrs().items():
        if any(each.address == host for each in found):
            return name
    return None


def bind_collectives(host: str) -> None:
    """Let gloo, nccl and tensorpipe in this process listen on the interface of an address, and on no other.

    Variables that the user has set are kept. By default, gloo listens on the address that the machine's name resolves
    to, and nccl on an interface that other machines can reach.
    """
    if (name := interface_of(host)) is None:
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    os.environ.setdefault("TP_SOCKET_IFNAME", name)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={name}")  # exactly: without =, it is a prefix
