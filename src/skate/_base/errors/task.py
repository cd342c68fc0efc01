"""Errors of tasks: exceptions of remote code, raised where the result is requested."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from skate._base.errors.root import PUBLIC_MODULE, RayError

if TYPE_CHECKING:
    from collections.abc import Callable

# The word before "::" in the first line of a remote traceback.
TITLE = "skate"


class RayTaskError(RayError):
    """Carry an exception raised by a task or actor method, with its remote traceback.

    What ``get`` raises is usually the result of ``as_instanceof_cause()``: an exception that is both
    this class and the class the remote code raised, so that ``except ValueError`` works.

    Args:
        function_name: The function or method that failed.
        traceback_str: The remote traceback as text, its first line naming function and process.
        cause: The exception that was raised.
        proctitle: Title of the process it happened in.
        pid: Process id of that process; this one when left out.
        ip: Address of the machine it happened on, where there is more than one.
        actor_repr: ``repr`` of the actor, for a method.
        actor_id: Id of the actor in hexadecimal, for a method.
    """

    def __init__(
        self,
        function_name: str,
        traceback_str: str,
        cause: BaseException | None,
        proctitle: str | None = None,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> None:
        super().__init__(function_name, traceback_str, cause, proctitle, pid, ip)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.proctitle = proctitle or f"{TITLE}::{function_name}"
        self.pid = os.getpid() if pid is None else pid
        self.ip = ip
        self.actor_repr = actor_repr
        self.actor_id = actor_id

    def __str__(self) -> str:
        return self.traceback_str

    @classmethod
    def from_exception(
        cls,
        function_name: str,
        exc: BaseException,
        *,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
        skip_frames: int = 0,
        dumps: Callable[[Any], Any] | None = None,
        loads: Callable[[Any], Any] | None = None,
    ) -> RayTaskError:
        """Wrap an exception where it was caught, rendering its traceback without Skate's own frames.

        Args:
            function_name: The function or method that failed.
            exc: What it raised. Another task's error contributes its cause, so errors never nest.
            pid: Process id to show; this process when left out.
            ip: Address of the machine to show.
            actor_repr: ``repr`` of the actor, for a method.
            actor_id: Id of the actor in hexadecimal, for a method.
            skip_frames: How many outermost frames to drop besides Skate's own.
            dumps: Serializes the cause. With ``loads``, a cause that does not survive the round trip is
                replaced by an ``UnserializableException`` that keeps its type name, text and traceback.
            loads: Reads back what ``dumps`` wrote.
        """
        from skate._base.errors.rendering import render_exception

        pid = os.getpid() if pid is None else pid
        body = render_exception(exc, skip_frames=skip_frames)
        text = f"{task_title(function_name, pid, ip, actor_id, actor_repr)}\n{body}"
        cause = root_cause(exc)
        if dumps is not None and cause is not None:
            reason = _why_unserializable(cause, dumps, loads)
            if reason is not None:
                cause = UnserializableException.from_exception(cause, text, reason)
                text = f"{text}\n({cause.summary})"
        return cls(function_name, text, cause, pid=pid, ip=ip, actor_repr=actor_repr, actor_id=actor_id)

    @classmethod
    def from_dependency(
        cls,
        function_name: str,
        error: BaseException,
        *,
        pid: int | None = None,
        ip: str | None = None,
        actor_repr: str | None = None,
        actor_id: str | None = None,
    ) -> RayTaskError:
        """Wrap the error of an argument that could not be computed, so the task itself never ran."""
        pid = os.getpid() if pid is None else pid
        kind = "RayTaskError" if isinstance(error, RayTaskError) else type(error).__qualname__
        text = (
            f"{task_title(function_name, pid, ip, actor_id, actor_repr)}\n"
            "  The task did not run: input arguments for this task could not be computed:\n"
            f"{type(error).__module__}.{kind}: {error}"
        )
        return cls(
            function_name,
            text,
            root_cause(error),
            pid=pid,
            ip=ip,
            actor_repr=actor_repr,
            actor_id=actor_id,
        )

    def make_dual_exception_instance(self) -> RayTaskError:
        """Return an exception that is an instance of this class and of the cause's class.

        Raises:
            TypeError: The class of the cause cannot be subclassed.
        """
        # Imported late: the dual class derives from this one.
        from skate._base.errors.dual import make_dual

        return make_dual(self)

    def as_instanceof_cause(self) -> RayTaskError:
        """Return an exception that ``except`` clauses for the cause's class catch as well.

        This error itself comes back where that is impossible: no cause, a cause whose class this class
        already derives from, or a cause whose class cannot be subclassed.
        """
        cause = root_cause(self)
        if cause is None or isinstance(self, type(cause)):
            return self
        try:
            return self.make_dual_exception_instance()
        except Exception as error:  # any user metaclass or __init_subclass__ may run here
            import logging

            logging.getLogger(PUBLIC_MODULE).warning(
                "The class %r of an exception raised by %s cannot be subclassed (%s). "
                "This exception is raised as RayTaskError only. "
                "You can use `ray_task_error.cause` to access the user exception.",
                type(cause),
                self.function_name,
                error,
            )
            return self


class TaskCancelledError(RayError):
    """Report that a task was cancelled before it finished.

    Args:
        task_id: Id of the task, if known.
        error_message: More about why.
    """

    def __init__(self, task_id: Any = None, error_message: str | None = None) -> None:
        super().__init__(*(value for value in (task_id, error_message) if value is not None))
        self.task_id = task_id
        self.error_message = error_message

    def __str__(self) -> str:
        if self.task_id is None:
            return self.error_message or "This task, or a task it depends on, was cancelled."
        return " ".join([f"Task {self.task_id} was cancelled.", *filter(None, [self.error_message])])


class UnserializableException(RayError):
    """Stand in for an exception that could not be sent between processes.

    Args:
        original_stack_trace: Traceback of the original, as text.
        type_name: Class of the original, with its module.
        message: ``str`` of the original.
        reason: Why it could not be sent.
    """

    def __init__(
        self,
        original_stack_trace: str,
        *,
        type_name: str | None = None,
        message: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(original_stack_trace)
        self.original_stack_trace = original_stack_trace
        self.type_name = type_name
        self.message = message
        self.reason = reason

    @classmethod
    def from_exception(
        cls, exc: BaseException, original_stack_trace: str, reason: str
    ) -> UnserializableException:
        """Keep the type name, text and traceback of an exception."""
        from skate._base.errors.rendering import safe_str

        kind = type(exc)
        return cls(
            original_stack_trace,
            type_name=f"{kind.__module__}.{kind.__qualname__}",
            message=safe_str(exc),
            reason=reason,
        )

    @property
    def summary(self) -> str:
        """Describe in one sentence which exception could not be sent, and why."""
        return (
            f"The exception {self.type_name or '(of unknown type)'} isn't serializable"
            f"{f': {self.reason}' if self.reason else ''}. Only its text is kept: give it a __reduce__ "
            "method, or register a serializer for it with skate.util.register_serializer."
        )

    def __str__(self) -> str:
        return f"{self.summary}\nOriginal exception:\n{self.original_stack_trace}"


def root_cause(error: BaseException) -> BaseException | None:
    """Return the user's exception at the bottom of an error that may wrap other tasks' errors."""
    cause: BaseException | None = error
    while isinstance(cause, RayTaskError):
        cause = cause.cause
    return cause


def task_title(
    function_name: str,
    pid: int | None,
    ip: str | None = None,
    actor_id: str | None = None,
    actor_repr: str | None = None,
) -> str:
    """Return the first line of a remote traceback, as in ``skate::f() (pid=1234)``."""
    facts = {"pid": pid, "ip": ip, "actor_id": actor_id, "repr": actor_repr}
    shown = ", ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
    return f"{TITLE}::{function_name}() ({shown})"


def _why_unserializable(
    cause: BaseException, dumps: Callable[[Any], Any], loads: Callable[[Any], Any] | None
) -> str | None:
    """Return why the cause does not survive a round trip, or None if it does."""
    try:
        data = dumps(cause)
    except Exception as error:  # pickling runs arbitrary user code
        return f"writing it failed with {_brief(error)}"
    if loads is None:
        return None
    try:
        copy = loads(data)
    except Exception as error:  # and so does unpickling
        return f"reading it back failed with {_brief(error)}"
    if not isinstance(copy, BaseException):
        return f"reading it back gave a {type(copy).__name__}, not an exception"
    return None


def _brief(error: BaseException) -> str:
    from skate._base.errors.rendering import safe_str

    return f"{type(error).__name__}: {safe_str(error)}"
