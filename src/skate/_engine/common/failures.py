"""Errors that the engine itself detects, serialized like results."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence

from skate._base import errors as exceptions
from skate._base.errors.actor import ActorOutOfMemoryError
from skate._base.errors.process import signal_name
from skate._engine.common.error_types import category, describe_failure

MONITOR = "Skate's memory monitor ended it before the kernel's out-of-memory killer could end anything else"
# Why an actor is unavailable.
DIED = "The actor died while it ran this call and is being restarted; max_task_retries would retry it"
RESTARTS = "The actor is restarting; with max_task_retries, the call would wait for it"
# Why an actor is dead.
OUT_OF_SCOPE = "The actor ended because all handles to it are gone."
JOB_ENDED = "The job that created the actor has ended."


def as_error(text: str) -> bytes:
    """Return a system error with this text."""
    return _dump(exceptions.RaySystemError(text))


def task_cancelled(task: bytes) -> bytes:
    """Return the error of a cancelled task."""
    return _dump(exceptions.TaskCancelledError(task.hex()))


def owner_died(id: bytes) -> bytes:
    """Return the error for an object whose process has ended before it made the object."""
    return _dump(exceptions.OwnerDiedError(id.hex()))


def object_lost(id: bytes) -> bytes:
    """Return the error for an object that is not, or no longer, known."""
    return _dump(exceptions.ObjectLostError(id.hex()))


def object_freed(id: bytes) -> bytes:
    """Return the error for an object that the program has freed."""
    return _dump(exceptions.ObjectFreedError(id.hex()))


def worker_crashed(name: str, pid: int, code: int | None, lines: Sequence[str], why: str = "") -> bytes:
    """Return the error of a task whose worker died."""
    return _dump(
        exceptions.WorkerCrashedError(
            pid=pid, exit_code=code, log_lines=lines, task_name=name, likely_cause=why or None
        )
    )


def out_of_memory(text: str, name: str, pid: int, code: int | None, lines: Sequence[str]) -> bytes:
    """Return the error of a task that was killed because memory ran out."""
    return _dump(
        exceptions.OutOfMemoryError(
            text, pid=pid, exit_code=code, log_lines=lines, task_name=name, likely_cause=MONITOR
        )
    )


def over_memory(
    name: str, used: int, total: int, where: str, threshold: float, rows: Sequence[tuple[int, str]]
) -> str:
    """Describe why a worker was ended for its memory, the usage of each process, and the remedies."""
    place = f"the control group {where} allows" if where else "this machine has"
    listed = "".join(f"\n  {_mb(size):>12}  {text}" for size, text in rows)
    return (
        f"The process of {name} was ended because memory ran out: {_mb(used)} of the {_mb(total)} that {place} are in "
        f"use ({used / total:.1%}), and the threshold is {threshold:.1%}. The largest processes:{listed}\nLet fewer "
        "tasks run at once (num_cpus), or let them use less memory. To raise the threshold, pass "
        "_system_config={'memory_usage_threshold': 0.98} to init() or set RAY_memory_usage_threshold; "
        "RAY_memory_monitor_refresh_ms=0 turns this off."
    )


def memory_warning(name: str, pid: int, used: int, total: int) -> str:
    """Describe the end of a worker for its memory, for the driver's terminal."""
    return (
        f"Skate ends {name} (pid {pid}), because {used / total:.1%} of {_mb(total)} memory are in use; see "
        "OutOfMemoryError for what to do."
    )


def no_worker(code: int | None, lines: Sequence[str]) -> bytes:
    """Return the error for workers that repeatedly end before they are ready."""
    log = "".join(f"\n  {line}" for line in lines)
    return as_error(f"Failed to startup worker: {exit_text(code)} The last lines of its log:{log or ' none'}")


def no_process(why: str) -> bytes:
    """Return the error for a process that the system refuses to start."""
    return as_error(f"Failed to startup worker: {why}")


def actor_died(
    actor: bytes,
    class_name: str,
    name: str,
    reason: str,
    *,
    pid: int | None = None,
    code: int | None = None,
    lines: Sequence[str] = (),
    over_memory: bool = False,
) -> bytes:
    """Return the error of an actor that is dead and will not restart."""
    kind = ActorOutOfMemoryError if over_memory else exceptions.ActorDiedError
    return _dump(
        kind(
            reason or None,
            actor_id=actor.hex(),
            class_name=class_name,
            name=name or None,
            pid=pid,
            exit_code=code,
            log_lines=lines,
            likely_cause=MONITOR if over_memory else None,
        )
    )


def unschedulable(name: str, why: str, *, actor: bool = False) -> bytes:
    """Return the error for resources that can never be available."""
    kind = exceptions.ActorUnschedulableError if actor else exceptions.TaskUnschedulableError
    return _dump(kind(f"{name} {why}"))


def group_removed(*, actor: bool) -> bytes:
    """Return the error for a placement group that was removed."""
    if actor:
        return _dump(exceptions.ActorPlacementGroupRemoved())
    return _dump(exceptions.TaskPlacementGroupRemoved())


def environment_failed(text: str) -> bytes:
    """Return the error for a runtime environment that could not be created."""
    return _dump(exceptions.RuntimeEnvSetupError(text))


def value_error(text: str) -> bytes:
    """Return the error for a name that does not exist, or that is taken."""
    return _dump(ValueError(text))


def actor_name_taken(name: str, namespace: str) -> str:
    """Return the message for a name that a living actor has."""
    return (
        f"The name {name} is already taken by a living actor of namespace {namespace!r}. Please use a different name, "
        f"or get_actor({name!r}, namespace={namespace!r}) for a handle of that actor."
    )


def group_name_taken(name: str, namespace: str) -> str:
    """Return the message for a name that a placement group has."""
    return (
        f"A placement group named {name!r} exists already in namespace {namespace!r}. Use another name or "
        f"get_placement_group({name!r})."
    )


def get_timed_out(pending: int, count: int, timeout: float | None) -> str:
    """Return the message of a `get` whose objects are not ready in time."""
    return (
        f"Get timed out: {pending} of {count} objects are not ready after {timeout} s. skate.util.state.why(ref) says "
        "what they wait for."
    )


def no_such_actor(name: str, namespace: str) -> str:
    """Return the message for a name that no living actor has."""
    return (
        f"Failed to look up actor with name '{name}': no living actor of the namespace {namespace!r} has it. It may "
        "have died, or belong to another namespace, which get_actor(name, namespace=...) takes."
    )


def foreign_reference(reference: object, *, several: bool = False) -> str:
    """Return the message for a reference that is used outside its session."""
    what = "Ray objects" if several else "a Ray object"
    return (
        f"The program uses {what} whose owner is unknown: {reference!r} belongs to another session, "
        "which has ended, and its object with it. References can only be used in the session that made them."
    )


def foreign_handle(actor: bytes) -> str:
    """Return the message for a handle that is used outside its session."""
    return (
        f"ActorHandle objects are not valid across Ray sessions. This one, of actor {actor.hex()}, comes from a "
        "session that has ended: create the actor again."
    )


def too_large(size: int, budget: int) -> str:
    """Return the message for an object that is larger than the object store."""
    return f"An object of {_mb(size)} does not fit the object store, whose budget is {_mb(budget)}"


def store_full(need: int, used: int, budget: int, mapped: Sequence[str], disk: str = "") -> str:
    """Return the message for an object store that is full."""
    text = f"The object store is full: {_mb(need)} asked for, {_mb(used)} of {_mb(budget)} in use"
    if mapped:
        text += f", of which {', '.join(mapped)}"
    return f"{text}, and objects could not be moved to disk: {disk}" if disk else text


def is_mapped(process: str, size: int) -> str:
    """Describe that a process maps objects."""
    return f"{_mb(size)} are mapped by {process}"


def shared_memory_full(size: int) -> str:
    """Return the message for a full file system of shared memory, although the object store is not full."""
    return f"Shared memory has no room for an object of {_mb(size)}, because other programs use it too"


def disk_full(reason: str, error: OSError) -> str:
    """The disk refuses an object that had to go to disk for a reason."""
    return (
        f"{reason}. Nor could it be written to disk: {error}. Free some disk space or name another folder in "
        "SKATE_TMPDIR, drop references to objects and arrays you no longer need, or pass a larger object_store_memory "
        "to init()."
    )


def no_memory(size: int, error: OSError) -> str:
    """Shared memory could not be allocated for a reason other than its size."""
    return f"Could not allocate {_mb(size)} of shared memory: {error}."


def asks_for(resources: Mapping[str, float]) -> str:
    """Describe the requested resources."""
    return "asks for {" + ", ".join(f"{name}: {amount:g}" for name, amount in sorted(resources.items())) + "}"


def cannot_fit(asked: Mapping[str, float], exist: Mapping[str, float]) -> str:
    """Describe the requested resources and the existing ones."""
    there = ", ".join(
        f"{name}: {amount:g}"
        for name, amount in sorted(exist.items())
        if name in asked or not (name.startswith("node:") or name in ("memory", "object_store_memory"))
    )
    return f"{asks_for(asked)}, which can never be met: this node has {{{there}}}."


def exit_text(code: int | None) -> str:
    """Describe the end of a process by its exit code."""
    if code is None:
        return ""
    if code >= 0:
        return f"The process ended with exit code {code}."
    return f"The process was ended by {signal_name(-code)} (signal {-code})."


def deadlock(chain: Sequence[str]) -> str:
    """Describe a deadlock, one step of the chain of waits and holders per line."""
    lines = "".join(f"\n  {step}" for step in chain)
    return (
        f"This would wait forever, a deadlock:{lines}\n"
        "Pass values on instead of waiting for them, let an actor run several calls at once (max_concurrency), or ask "
        "for fewer resources (an actor with num_cpus=0 holds no CPU)."
    )


def describe(error: bytes) -> str:
    """Return what the history of tasks keeps of an error that the engine has detected."""
    found = pickle.loads(error)
    return describe_failure(category(found), str(found))


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _dump(error: BaseException) -> bytes:
    return pickle.dumps(error, 5)
