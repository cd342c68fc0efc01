"""Replaces `ray._private.services`: the address of this machine."""

from __future__ import annotations

from skate.util.node import get_node_ip_address

__all__ = ["get_node_ip_address"]
