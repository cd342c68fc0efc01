"""Translation of errors: exceptions of user code, and errors of Ray.

A failed task raises `TaskFailure` to Ray, which contains the error that Skate's other engines would have made. A
program therefore gets the same error, with the same fields and text, on all engines. An error of Ray itself (a dead
worker, a lost object) becomes an error of Skate's class with the same name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Under its public name: cloudpickle sends a class by value when the module that it names is not loaded.
from skate import exceptions as errors
from skate._base.alias import real_ray
from skate._engine.common.outcomes import as_raised, task_error


class TaskFailure(Exception):
    """Carries the error of a task or a call from the worker to the caller of `get`."""

    def __init__(self, error: errors.RayTaskError) -> None:
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return str(self.error)


class RetryableFailure(TaskFailure):
    """Raised for an exception on which the task is retried."""


_COLOUR = re.compile(r"\x1b\[\d+m")


def packed(
    error: Exception,
    name: str,
    retries: Callable[[BaseException], bool],
    actor: Any = None,
    actor_id: bytes = b"",
) -> Exception:
    """Return the exception that a worker raises to Ray for one of user code."""
    theirs: type[Exception] = real_ray("ray.exceptions").RayError
    if isinstance(error, theirs):
        return error  # Ray's exception to exit an actor, or the error of an argument
    made = task_error(error, name, actor, actor_id)
    return RetryableFailure(made) if retries(error) else TaskFailure(made)


def translated(error: BaseException) -> BaseException:
    """Return Skate's error for one of Ray's; other errors are returned unchanged."""
    theirs = real_ray("ray.exceptions")
    if isinstance(error, theirs.RayTaskError):
        return _task_error(error, theirs)
    if not isinstance(error, theirs.RayError):
        return error
    make = _MAKERS.get(type(error).__name__, _by_name)
    made: BaseException = make(error)
    return made


# Ray's text for a task that did not run. Nothing else distinguishes its error from that of the argument.
_OF_AN_ARGUMENT = "At least one of the input arguments"


def _task_error(error: Any, theirs: Any) -> BaseException:
    cause = error.cause
    while isinstance(cause, theirs.RayTaskError):
        cause = cause.cause
    if isinstance(cause, TaskFailure):
        found: errors.RayTaskError = cause.error
        if _OF_AN_ARGUMENT in str(error):
            found = errors.RayTaskError.from_dependency(_name(error), found, pid=getattr(error, "pid", None))
        return as_raised(found)
    # Ray itself ended the task, for example by cancellation; or Skate did not run the code: a plain Ray actor.
    actor_id = getattr(error, "_actor_id", None)
    return as_raised(errors.RayTaskError(_name(error), _text(error), translated(cause), actor_id=actor_id))


def _name(error: Any) -> str:
    """Return the function that failed; an error that also has its cause's type has the name in its text only."""
    known = error.__dict__.get("function_name")
    return str(known or _text(error).partition("::")[2].partition("(")[0] or "task")


def _actor_died(error: Any) -> BaseException:
    made = errors.ActorDiedError(_text(error), actor_id=error.actor_id, preempted=bool(error.preempted))
    made._actor_init_failed = bool(error.actor_init_failed)
    return made


def _actor_error(error: Any) -> BaseException:
    return errors.RayActorError(
        error.actor_id, _text(error), bool(error.actor_init_failed), bool(error.preempted)
    )


def _actor_unavailable(error: Any) -> BaseException:
    made = errors.ActorUnavailableError(_text(error), error.actor_id)
    made.error_msg = _text(error)
    return made


def _object_lost(error: Any) -> BaseException:
    kind = getattr(errors, type(error).__name__)
    made: BaseException = kind(error.object_ref_hex)
    return made


def _cancelled(error: Any) -> BaseException:
    task = getattr(error, "task_id", None)
    return errors.TaskCancelledError(task.hex() if task is not None else None)


def _crashed(error: Any) -> BaseException:
    return errors.WorkerCrashedError(_text(error))


def _by_name(error: Any) -> BaseException:
    kind = getattr(errors, type(error).__name__, errors.RaySystemError)
    made: BaseException = kind(_text(error))
    return made


def _text(error: BaseException) -> str:
    """Return the text of an error without Ray's colours."""
    return _COLOUR.sub("", str(error))


_MAKERS: dict[str, Callable[[Any], BaseException]] = {
    "ActorDiedError": _actor_died,
    "ActorUnavailableError": _actor_unavailable,
    "ObjectFetchTimedOutError": _object_lost,
    "ObjectFreedError": _object_lost,
    "ObjectLostError": _object_lost,
    "ObjectReconstructionFailedError": _object_lost,
    "OwnerDiedError": _object_lost,
    "RayActorError": _actor_error,
    "ReferenceCountingAssertionError": _object_lost,
    "TaskCancelledError": _cancelled,
    "WorkerCrashedError": _crashed,
}
