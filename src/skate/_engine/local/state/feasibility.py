"""Requests that can never be met: found when they are made, not by waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skate._engine.common import failures
from skate._engine.common.resources import to_floats
from skate._engine.local.state.records import Peer, SchedulingClass
from skate._engine.local.wire import messages as m

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine


OVER = "was submitted by a worker whose job has ended."


def why_impossible(machine: Machine, peer: Peer, spec: m.TaskTemplate, cls: SchedulingClass) -> str:
    """Say why tasks of a template of `peer` can never run on this node; empty when they can."""
    if peer.killed and machine.job_info[peer.job]["ended"]:
        return OVER
    if spec.node and spec.node != machine.node_id.hex():
        return f"must run on node {spec.node}, which does not exist; this node is {machine.node_id.hex()}."
    choices = [spec.labels, *spec.label_choices]
    if not any(machine.labels_match(choice) for choice in choices):
        wanted = " or ".join(map(str, choices))
        return f"asks for a node with labels {wanted}; this node has {machine.labels}."
    if spec.group:
        return machine.groups.why_impossible(spec.group, spec.bundle, cls.request)
    if not machine.scheduler.pool.could_fit(cls.request):
        return failures.cannot_fit(spec.resources, to_floats(machine.scheduler.pool.total))
    return ""
