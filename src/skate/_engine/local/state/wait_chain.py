"""Descriptions of chains of waits: which process waits for which resource or object, and its holder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from skate._engine.common.resources import Request, to_floats
from skate._engine.local.state.records import Actor, Group, Peer, SchedulingClass
from skate._engine.local.state.wait_graph import ACTOR_RELEASE, DEMAND, GROUP_RELEASE, PROCESS, TASK

if TYPE_CHECKING:
    from skate._engine.local.state.machine import Machine

MAX_HOLDERS_NAMED = 5  # holders that a text names


def describe_chain(machine: Machine, path: Sequence[Any]) -> list[str]:
    """Return a sentence for each step along nodes of a wait-for graph."""
    steps = []
    named = [key for key in path if key[0] in (PROCESS, TASK, DEMAND, ACTOR_RELEASE, GROUP_RELEASE)]
    for here, there in pairwise(named):
        if here[0] == DEMAND and there[0] != DEMAND:
            steps.append(f"{_name(machine, there)} holds {_holding(machine, there)}")
        elif here[0] == GROUP_RELEASE:
            steps.append(f"{_name(machine, here)} stays until it is removed; {_name(machine, there)} waits")
        elif _name(machine, here) != _name(machine, there):
            steps.append(f"{_name(machine, here)} waits for {_name(machine, there)}")
    return steps or [f"{_name(machine, named[0])} waits for itself"]


def describe_holders(machine: Machine, asking: Any, holders: Sequence[Any]) -> str:
    """Describe a request and the holders of its resources."""
    names = [
        f"{_name(machine, holder)} holds {_holding(machine, holder)}"
        for holder in holders[:MAX_HOLDERS_NAMED]
    ]
    if len(holders) > MAX_HOLDERS_NAMED:
        names.append(f"{len(holders) - MAX_HOLDERS_NAMED} others hold more")
    is_group = isinstance(asking, bytes)
    request = machine.groups.table[asking].total() if is_group else asking.request
    return f"{_asker(machine, asking)} waits for the resources {_amounts(request)}; " + ", ".join(names)


def _name(machine: Machine, key: Any) -> str:
    kind, what = key[0], key[1]
    if kind == PROCESS:
        return _process(machine.peers[what])
    if kind == TASK:
        task = machine.tasks.table[what]
        if task.actor is not None:
            return _actor(task.actor)
        where = f" (pid {task.worker.pid})" if task.worker is not None else ""
        return f"task {task.template.spec.name}{where}"
    if kind == ACTOR_RELEASE:
        return _actor(machine.actors.table[what])
    if kind == DEMAND and isinstance(what, SchedulingClass):
        return f"the resources {_amounts(what.request)}"
    return _group(machine.groups.table[what])


def _asker(machine: Machine, asking: SchedulingClass | bytes) -> str:
    if isinstance(asking, bytes):
        return _group(machine.groups.table[asking])
    task = asking.queue[0]
    return _actor(task.actor) if task.actor is not None else f"task {task.template.spec.name}"


def _process(peer: Peer) -> str:
    if peer.is_driver:
        return f"the driver (pid {peer.pid})"
    if peer.actor is not None:
        return _actor(peer.actor)
    names = ", ".join(task.template.spec.name for task in peer.tasks.values())
    return f"task {names} (pid {peer.pid})" if names else f"an idle worker (pid {peer.pid})"


def _actor(actor: Actor) -> str:
    return f"actor {actor.class_name}" + (f" (pid {actor.worker.pid})" if actor.worker is not None else "")


def _group(group: Group) -> str:
    return f"placement group {group.name or group.id.hex()[:16]} {group.bundles}"


def _holding(machine: Machine, key: Any) -> str:
    if key[0] == GROUP_RELEASE:
        return _amounts(machine.groups.table[key[1]].total())
    worker = machine.actors.table[key[1]].worker if key[0] == ACTOR_RELEASE else machine.peers[key[1]]
    return _amounts(worker.grant.amounts) if worker is not None and worker.grant is not None else "it"


def _amounts(request: Request) -> str:
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in to_floats(request).items()) + "}"
