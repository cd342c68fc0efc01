"""Categories of the errors in the table of tasks, with the names that Ray has for them, and the text that is kept."""

from __future__ import annotations

from skate._base import errors as exceptions

# The code of the task or of the actor has raised an exception.
EXECUTION = "TASK_EXECUTION_EXCEPTION"
CANCELLED = "TASK_CANCELLED"
WORKER_DIED = "WORKER_DIED"
ACTOR_DIED = "ACTOR_DIED"
OUT_OF_MEMORY = "OUT_OF_MEMORY"

# Characters of an error that the history of tasks keeps: the end, where the message is.
MAX_ERROR_TEXT = 2_000

# What the engine itself reports. A subclass stands before its base.
_CATEGORIES: dict[type[BaseException], str] = {
    exceptions.TaskCancelledError: CANCELLED,
    exceptions.OutOfMemoryError: OUT_OF_MEMORY,
    exceptions.WorkerCrashedError: WORKER_DIED,
    exceptions.ActorUnavailableError: "ACTOR_UNAVAILABLE",
    exceptions.ActorDiedError: ACTOR_DIED,
    exceptions.TaskUnschedulableError: "TASK_UNSCHEDULABLE_ERROR",
    exceptions.ActorUnschedulableError: "ACTOR_UNSCHEDULABLE_ERROR",
    exceptions.TaskPlacementGroupRemoved: "TASK_PLACEMENT_GROUP_REMOVED",
    exceptions.ActorPlacementGroupRemoved: "ACTOR_PLACEMENT_GROUP_REMOVED",
    exceptions.RuntimeEnvSetupError: "RUNTIME_ENV_SETUP_FAILED",
    exceptions.OutOfDiskError: "OUT_OF_DISK_ERROR",
    exceptions.OwnerDiedError: "OWNER_DIED",
    exceptions.ObjectFreedError: "OBJECT_FREED",
    exceptions.ObjectLostError: "OBJECT_LOST",
}


def category(error: BaseException) -> str:
    """Return the category of an error that the engine reports; that of exceptions in code for all others.

    >>> category(exceptions.ObjectFreedError("ab"))
    'OBJECT_FREED'
    """
    return next((name for kind, name in _CATEGORIES.items() if isinstance(error, kind)), EXECUTION)


def describe_failure(kind: str, text: str) -> str:
    """Return what the history of tasks keeps of an error: its category, and below it the end of its text."""
    kept = text if len(text) <= MAX_ERROR_TEXT else f"… {text[-MAX_ERROR_TEXT:]}"
    return f"{kind}\n{kept}"
