"""Exits of processes for the state API: the exit type as Ray names it, and its details."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._base.errors.process import likely_cause_of
from skate._engine.common import failures

if TYPE_CHECKING:
    from skate._engine.local.state.records import Peer

# Why a process was ended, or ended itself.
IDLE = "The worker ended because it was idle."
FORCED = "one of its tasks was cancelled by force (ray.cancel)"
CONSTRUCTOR = "the actor's constructor raised an exception"
GROUP_REMOVED = "its placement group was removed"
JOB_ENDED = "its job has ended"

_TYPES = {FORCED: "INTENDED_USER_EXIT", CONSTRUCTOR: "USER_ERROR"}


def exit_type(peer: Peer) -> str:
    """Return the exit type of a process."""
    if peer.over_memory:
        return "NODE_OUT_OF_MEMORY"
    if peer.killed:
        return _TYPES.get(peer.killed, "INTENDED_SYSTEM_EXIT")
    return "SYSTEM_ERROR" if peer.exit_code else "INTENDED_USER_EXIT"


def exit_detail(peer: Peer) -> str:
    """Describe the exit of a process and its likely cause."""
    if peer.killed:
        return peer.killed
    if peer.is_driver:
        return "The driver has left: it called ray.shutdown(), or has ended."
    code = peer.exit_code
    if code is None:
        return ""
    why = peer.actor.reason if code == 0 and peer.actor is not None else ""
    cause = likely_cause_of(None, -code) if code < 0 else None
    if code == -9 and cause:
        cause += " (OOM)"
    return " ".join(filter(None, [why, failures.exit_text(code), f"Likely cause: {cause}." if cause else ""]))
