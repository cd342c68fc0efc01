"""Errors of the system around tasks: scheduling, environments, channels, connections."""

from __future__ import annotations

from typing import Any

from skate._base.errors.root import RayError


class RaySystemError(RayError):
    """Report a failure of the system rather than of a task.

    Args:
        client_exc: The exception or message.
        traceback_str: Traceback as text, if there is one.
    """

    def __init__(self, client_exc: Any, traceback_str: str | None = None) -> None:
        super().__init__(*((client_exc,) if traceback_str is None else (client_exc, traceback_str)))
        self.client_exc = client_exc
        self.traceback_str = traceback_str

    def __str__(self) -> str:
        text = f"System error: {self.client_exc}"
        return f"{text}\ntraceback: {self.traceback_str}" if self.traceback_str else text


class RayChannelError(RaySystemError):
    """Report a fault of a channel between the processes of a compiled graph."""


class RayChannelTimeoutError(RayChannelError, TimeoutError):
    """Report that a channel could not be read or written in time."""


class PreflightError(RayError):
    """Report all problems that prevent a program from running on a Ray cluster. Not in Ray.

    Args:
        problems: One sentence for each.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        lines = "".join(f"\n  - {problem}" for problem in self.problems)
        return (
            f"This program cannot run on the Ray cluster:{lines}\n"
            'Fix these, or connect with init(…, preflight="warn") to try anyway.'
        )


class RayCgraphCapacityExceeded(RaySystemError):
    """Report that a compiled graph has reached its limit of executions in flight."""


class RayDirectTransportError(RaySystemError):
    """Report that a tensor could not be sent directly between two devices."""


class StreamingGeneratorReplayInconsistentError(RaySystemError):
    """Report that a retried generator gave different results than before."""


class RpcError(RayError):
    """Report that a message to another process failed.

    Args:
        message: What happened.
        rpc_code: A status code, if there is one.
    """

    def __init__(self, message: str, rpc_code: int | None = None) -> None:
        super().__init__(*((message,) if rpc_code is None else (message, rpc_code)))
        self.message = message
        self.rpc_code = rpc_code

    def __str__(self) -> str:
        return self.message


class AuthenticationError(RayError):
    """Report that a Ray cluster rejected the token, or that there is none."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return (
            f"{self.message}. Put the cluster's token into RAY_AUTH_TOKEN, or into the file that "
            "RAY_AUTH_TOKEN_PATH names. The operator of the cluster has it. "
            "https://docs.ray.io/en/latest/ray-security/token-auth.html says more."
        )


class CrossLanguageError(RayError):
    """Report an exception raised by code in another language."""

    def __init__(self, ray_exception: Any) -> None:
        super().__init__(ray_exception)
        self.ray_exception = ray_exception

    def __str__(self) -> str:
        if isinstance(self.ray_exception, str):
            return self.ray_exception
        return f"An exception raised in another language: {self.ray_exception}"


class UserCodeException(RayError):
    """Report that code handed to a library by the user raised an exception."""


class RuntimeEnvSetupError(RayError):
    """Report that a runtime environment could not be set up.

    Args:
        error_message: The error, with the output of the tool that failed.
    """

    def __init__(self, error_message: str | None = None) -> None:
        super().__init__(*(() if error_message is None else (error_message,)))
        self.error_message = error_message

    def __str__(self) -> str:
        lines = ["Failed to set up runtime environment.", *filter(None, [self.error_message])]
        return "\n".join(lines)


class TaskPlacementGroupRemoved(RayError):
    """Report that the placement group a task was to run in is gone."""

    def __str__(self) -> str:
        return super().__str__() or "The placement group that the task was to run in has been removed."


class DeadlockError(RayError):
    """Report a `get`, `wait` or `await` that could never end, because it waits for itself indirectly."""


class TaskUnschedulableError(RayError):
    """Report that a task can never be placed with the resources or the node that it requests."""

    def __init__(self, error_message: str) -> None:
        super().__init__(error_message)
        self.error_message = error_message

    def __str__(self) -> str:
        return f"The task is not schedulable: {self.error_message}"
