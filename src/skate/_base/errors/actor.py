"""Errors of actors: dead, temporarily unavailable, or not found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate._base.errors.process import OutOfMemoryError, ProcessDeath
from skate._base.errors.root import RayError
from skate._base.errors.task import RayTaskError

if TYPE_CHECKING:
    from collections.abc import Sequence


class RayActorError(RayError):
    """Report that an actor could not finish a call.

    Args:
        actor_id: Id of the actor in hexadecimal, if known.
        error_msg: What happened.
        actor_init_failed: Whether the actor's constructor failed.
        preempted: Whether the actor's machine was taken away.
    """

    BASE_ERROR_MSG = "The actor failed before it could finish the call."

    def __init__(
        self,
        actor_id: str | None = None,
        error_msg: str = BASE_ERROR_MSG,
        actor_init_failed: bool = False,
        preempted: bool = False,
    ) -> None:
        super().__init__(*(() if actor_id is None else (actor_id, error_msg)))
        self.actor_id = actor_id
        self.error_msg = error_msg
        self._actor_init_failed = actor_init_failed
        self._preempted = preempted

    @property
    def actor_init_failed(self) -> bool:
        """Whether the actor's constructor failed."""
        return self._actor_init_failed

    @property
    def preempted(self) -> bool:
        """Whether the actor's machine was taken away."""
        return self._preempted

    def __str__(self) -> str:
        return self.error_msg


class ActorDiedError(ProcessDeath, RayActorError):
    """Report that an actor is dead and will not come back.

    Args:
        cause: The error of its constructor, or a sentence that says why it died.
        actor_id: Id of the actor in hexadecimal; taken from ``cause`` when left out.
        class_name: Class of the actor.
        name: Name it was registered under.
        preempted: Whether the actor's machine was taken away.
        pid: Process id of its worker.
        exit_code: Exit code of that process; a negative one means a signal.
        signal: The signal that ended it.
        likely_cause: Why it ended, in words; guessed from the exit code and signal when left out.
        log_lines: The last lines the process wrote.
        task_name: The method it was running.
    """

    BASE_ERROR_MSG = "The actor died unexpectedly before finishing this task."

    def __init__(
        self,
        cause: RayTaskError | str | None = None,
        *,
        actor_id: str | None = None,
        class_name: str | None = None,
        name: str | None = None,
        preempted: bool = False,
        pid: int | None = None,
        exit_code: int | None = None,
        signal: int | None = None,
        likely_cause: str | None = None,
        log_lines: Sequence[str] = (),
        task_name: str | None = None,
    ) -> None:
        init_failed = isinstance(cause, RayTaskError)
        if isinstance(cause, RayTaskError):
            message = (
                f"The actor could not be created, because of an error raised in its creation task: {cause}"
            )
            actor_id = actor_id or cause.actor_id
        else:
            message = cause or self.BASE_ERROR_MSG
        super().__init__(actor_id, message, actor_init_failed=init_failed, preempted=preempted)
        self.args = () if cause is None else (cause,)
        self.cause = cause
        self.class_name = class_name
        self.name = name
        self._set_facts(
            pid=pid,
            exit_code=exit_code,
            signal=signal,
            likely_cause=likely_cause,
            log_lines=log_lines,
            task_name=task_name,
        )

    @classmethod
    def from_task_error(cls, task_error: RayTaskError) -> ActorDiedError:
        """Make the error of an actor whose constructor raised."""
        return cls(task_error)

    def __str__(self) -> str:
        lines = [self.error_msg]
        if self.class_name:
            lines.append(f"  class: {self.class_name}")
        if self.name:
            lines.append(f"  name: {self.name}")
        if self.actor_id and not self.actor_init_failed:
            lines.append(f"  actor_id: {self.actor_id}")
        return "\n".join(lines) + self._facts_text()


class ActorOutOfMemoryError(OutOfMemoryError, ActorDiedError):
    """Report that an actor is dead because memory ran out.

    Ray raises `OutOfMemoryError`. This error is an `ActorDiedError` as well, for code that handles dead actors.
    """

    def __init__(self, cause: RayTaskError | str | None = None, **facts: Any) -> None:
        ActorDiedError.__init__(self, cause, **facts)
        self.message = self.error_msg

    __str__ = ActorDiedError.__str__


ActorOutOfMemoryError.__module__ = __name__  # without a public name: programs use those of its bases


class ActorUnavailableError(RayActorError):
    """Report that an actor is temporarily unavailable.

    Args:
        error_message: Why it cannot be reached.
        actor_id: Id of the actor, as bytes or in hexadecimal, if known.
    """

    def __init__(self, error_message: str, actor_id: bytes | str | None = None) -> None:
        hex_id = actor_id.hex() if isinstance(actor_id, bytes) else actor_id
        super().__init__(
            actor_id=hex_id,
            error_msg=(
                f"The actor {f'{hex_id} ' if hex_id else ''}is unavailable: {error_message}. "
                "It is unknown whether the call ran."
            ),
        )
        self.args = (error_message, actor_id)


class ActorUnschedulableError(RayError):
    """Report that an actor can never be placed with the resources or the node that it requests."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The actor is not schedulable: {self.error_message}"


class ActorPlacementGroupRemoved(RayError):
    """Report that the placement group an actor was to run in is gone."""

    def __str__(self) -> str:
        return _text(self, "The placement group that the actor was to run in has been removed.")


class ActorAlreadyExistsError(ValueError, RayError):
    """Report that a live actor already has the name."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return self.error_message


class ActorHandleNotFoundError(ValueError, RayError):
    """Report that an actor handle is invalid here, because it is from another session."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return self.error_message


class AsyncioActorExit(RayError):
    """Leave an asyncio actor's method when ``exit_actor`` was called in it."""


class PendingCallsLimitExceeded(RayError):
    """Report that an actor has reached its limit of pending calls, ``max_pending_calls``."""


def _text(error: Any, otherwise: str) -> str:
    return str(error.args[0]) if error.args else otherwise
