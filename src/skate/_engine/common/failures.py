"""Errors that an engine itself finds out, serialized as results are."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

from skate._base import errors as exceptions
from skate._base.errors.process import signal_name

# Why an actor is unavailable.
DIED = "The actor died while it ran this call and is being restarted; max_task_retries would retry it"
RESTARTS = "The actor is being restarted; with max_task_retries, the call would wait for it"


def as_error(text: str) -> bytes:
    """Return a system error with this text."""
    return _dump(exceptions.RaySystemError(text))


def cancelled(task: bytes) -> bytes:
    """The task was cancelled."""
    return _dump(exceptions.TaskCancelledError(task.hex()))


def owner_died(id: bytes) -> bytes:
    """The process that would have made the object is gone."""
    return _dump(exceptions.OwnerDiedError(id.hex()))


def lost(id: bytes) -> bytes:
    """Nobody knows the object (any more)."""
    return _dump(exceptions.ObjectLostError(id.hex()))


def freed(id: bytes) -> bytes:
    """The object was freed on purpose."""
    return _dump(exceptions.ObjectFreedError(id.hex()))


def crashed(name: str, pid: int, code: int | None, lines: Sequence[str], why: str = "") -> bytes:
    """The worker died while it ran the task."""
    return _dump(
        exceptions.WorkerCrashedError(
            pid=pid, exit_code=code, log_lines=lines, task_name=name, likely_cause=why or None
        )
    )


def no_worker(code: int | None, lines: Sequence[str]) -> bytes:
    """Workers end before they are ready, one after the other."""
    log = "".join(f"\n  {line}" for line in lines)
    return as_error(f"Failed to startup worker: {exit_text(code)} The last lines of its log:{log or ' none'}")


def actor_died(
    actor: bytes,
    class_name: str,
    name: str,
    reason: str,
    *,
    pid: int | None = None,
    code: int | None = None,
    lines: Sequence[str] = (),
) -> bytes:
    """The actor is dead and will not come back."""
    return _dump(
        exceptions.ActorDiedError(
            reason or None,
            actor_id=actor.hex(),
            class_name=class_name,
            name=name or None,
            pid=pid,
            exit_code=code,
            log_lines=lines,
        )
    )


def unschedulable(name: str, why: str, *, actor: bool = False) -> bytes:
    """The request can never be met."""
    kind = exceptions.ActorUnschedulableError if actor else exceptions.TaskUnschedulableError
    return _dump(kind(f"{name} {why}"))


def group_removed(*, actor: bool) -> bytes:
    """The placement group is gone."""
    if actor:
        return _dump(exceptions.ActorPlacementGroupRemoved())
    return _dump(exceptions.TaskPlacementGroupRemoved())


def environment_failed(text: str) -> bytes:
    """The runtime environment could not be made."""
    return _dump(exceptions.RuntimeEnvSetupError(text))


def value_error(text: str) -> bytes:
    """The caller asked for something that does not exist or is taken."""
    return _dump(ValueError(text))


def no_such_actor(name: str, namespace: str) -> str:
    """No living actor has the name."""
    return (
        f"Failed to look up actor with name '{name}'. This could because 1. You are trying to look up a named actor "
        "you didn't create. 2. The named actor died. 3. You did not use a namespace matching the namespace of the "
        f"actor (looked in {namespace!r})."
    )


def foreign_reference(reference: object, *, several: bool = False) -> str:
    """A reference is used in another session than its own."""
    what = "Ray objects" if several else "a Ray object"
    return (
        f"An application is trying to access {what} whose owner is unknown: {reference!r} belongs to another session, "
        "which has ended, and its object with it. References can only be used in the session that made them."
    )


def foreign_handle(actor: bytes) -> str:
    """A handle is used in another session than its own."""
    return (
        f"ActorHandle objects are not valid across Ray sessions: the actor {actor.hex()} is not of this session, and "
        "the session that made the handle has ended."
    )


def too_large(size: int, budget: int) -> str:
    """An object is larger than the whole object store."""
    return (
        f"An object of {_mb(size)} does not fit the object store, whose budget is {_mb(budget)}. Pass "
        "object_store_memory=… to init() to give it more, or split the object."
    )


def store_full(need: int, used: int, budget: int, disk: str = "") -> str:
    """Everything in the object store is in use, or cannot be moved to disk."""
    if disk:
        return (
            f"The object store is full: {_mb(need)} asked for, {_mb(used)} of {_mb(budget)} in use, and objects could "
            f"not be moved to disk: {disk}. Free some disk space or name another folder in SKATE_TMPDIR, drop "
            "references to objects you no longer need, or pass a larger object_store_memory to init()."
        )
    return (
        f"The object store is full: {_mb(need)} asked for, {_mb(used)} of {_mb(budget)} in use by objects "
        "that are mapped by running code and cannot be moved to disk. Drop references to arrays you no "
        "longer need, or pass a larger object_store_memory to init()."
    )


def cannot_fit(asked: Mapping[str, float], exist: Mapping[str, float]) -> str:
    """Say what was asked for and what there is."""
    wanted = ", ".join(f"{name}: {amount:g}" for name, amount in sorted(asked.items()))
    there = ", ".join(
        f"{name}: {amount:g}"
        for name, amount in sorted(exist.items())
        if name in asked or not (name.startswith("node:") or name in ("memory", "object_store_memory"))
    )
    return f"asks for {{{wanted}}}, which can never be met: this node has {{{there}}}."


def exit_text(code: int | None) -> str:
    """Say how a process ended, from its exit code."""
    if code is None:
        return ""
    if code >= 0:
        return f"The process ended with exit code {code}."
    return f"The process was ended by {signal_name(-code)} (signal {-code})."


def wait_cycle(cycle: Sequence[str]) -> str:
    """Say who waits for whom, round in a circle."""
    chain = " waits for ".join([cycle[-1], *cycle])
    return (
        f"This get would wait forever: {chain}. Pass the values on instead of waiting for them, or let the actor "
        "run several calls at once (max_concurrency)."
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _dump(error: BaseException) -> bytes:
    return pickle.dumps(error, 5)
