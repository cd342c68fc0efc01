"""The errors of Serve, under the names Ray gives them.

All keep their fields when they are pickled: they travel from replicas to whoever called.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from skate.exceptions import RayActorError, TaskCancelledError
from skate.serve._config import defaults

if TYPE_CHECKING:
    from skate.serve._runtime.ids import DeploymentID

__all__ = [
    "ApplicationError",
    "BackPressureError",
    "DeploymentConfigError",
    "DeploymentSerializationError",
    "DeploymentUnavailableError",
    "ExternalScalerDisabledError",
    "ListenError",
    "RayServeException",
    "ReplicaDiedError",
    "ReplicaStoppedError",
    "ReplicaUnavailableError",
    "RequestCancelledError",
    "gRPCStatusError",
    "retry_after",
]


class RayServeException(Exception):
    """The base of all errors of Serve."""


class ApplicationError(RayServeException, ValueError):
    """Deployments are bound to each other in a way that cannot be deployed."""


class DeploymentSerializationError(RayServeException, TypeError):
    """A deployment, or an argument of its constructor, cannot be pickled."""


class DeploymentConfigError(RayServeException, ValueError):
    """Options of a deployment contradict each other.

    Args:
        message: What the contradiction is, and how to end it.
        options: The names of the options.
    """

    def __init__(self, message: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(message, options)
        self.message = message
        self.options = options

    def __str__(self) -> str:
        return self.message


class ListenError(RayServeException, OSError, RuntimeError):
    """Serve cannot listen at the address it was given: a RuntimeError, as in Ray, and the OSError that it is.

    Args:
        errno: The number of the system's error.
        strerror: What is wrong, and what to do.
    """


class BackPressureError(RayServeException):
    """A request was turned away because too many were waiting already.

    Args:
        num_queued_requests: How many were waiting.
        max_queued_requests: How many may wait, the deployment's `max_queued_requests`.
        status_code: What an HTTP client is answered.
        retry_after_s: When it is worth trying again, in seconds.
    """

    def __init__(
        self,
        num_queued_requests: int,
        max_queued_requests: int,
        status_code: int = defaults.BACKPRESSURE_STATUS_CODE,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(num_queued_requests, max_queued_requests, status_code, retry_after_s)
        self.num_queued_requests = num_queued_requests
        self.max_queued_requests = max_queued_requests
        self.status_code = status_code
        self.retry_after_s = retry_after_s

    @property
    def message(self) -> str:
        """Return what happened, with both numbers."""
        return (
            f"Request dropped due to backpressure (num_queued_requests={self.num_queued_requests}, "
            f"max_queued_requests={self.max_queued_requests})."
        )

    def __str__(self) -> str:
        return self.message


def retry_after(error: BackPressureError) -> int:
    """Return what an HTTP client that was turned away is told: after how many whole seconds to try again."""
    return 1 if error.retry_after_s is None else math.ceil(error.retry_after_s)


class RequestCancelledError(RayServeException, TaskCancelledError):
    """A request was cancelled: by its caller, by its client going away, or by the deployment going down.

    Args:
        request_id: Which one, if known.
    """

    def __init__(self, request_id: str | None = None) -> None:
        super().__init__(*(() if request_id is None else (request_id,)))
        self.request_id = request_id

    def __str__(self) -> str:
        return f"Request {self.request_id} was cancelled." if self.request_id else "Request was cancelled."


class DeploymentUnavailableError(RayServeException):
    """A deployment takes no requests: it failed to deploy, is being deleted, or can have no replica.

    Args:
        deployment_id: Which one.
        reason: Why, if it is known to be something else than the first two.
    """

    def __init__(self, deployment_id: DeploymentID, reason: str = "") -> None:
        super().__init__(deployment_id, reason)
        self.deployment_id = deployment_id
        self.reason = reason

    @property
    def message(self) -> str:
        """Return what happened and where to look."""
        reason = self.reason or "it failed to deploy or is being deleted. See `serve.status()`."
        return f"{self.deployment_id} is unavailable: {reason}"

    def __str__(self) -> str:
        return self.message


class ReplicaUnavailableError(RayServeException):
    """A replica takes no requests, and the call named that very one.

    Args:
        replica_id: Which one.
    """

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self.replica_id = replica_id

    @property
    def message(self) -> str:
        """Return what happened and what to do."""
        return f"Replica {self.replica_id} is unavailable: it stopped or is stopping. Call the deployment instead."

    def __str__(self) -> str:
        return self.message


class ReplicaDiedError(ReplicaUnavailableError, RayActorError):
    """The replica died with a request that may not be run twice.

    Args:
        replica_id: Which one.
    """

    def __init__(self, replica_id: str) -> None:
        RayActorError.__init__(self, replica_id)
        self.replica_id = replica_id

    @property
    def message(self) -> str:
        """Return what happened and what is unknown."""
        return (
            f"Replica {self.replica_id} died while it worked on the request, which may have been carried out in part. "
            "Requests that may run twice are sent to another replica by themselves: idempotent HTTP methods, and those "
            "with an Idempotency-Key."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.replica_id,)


class ReplicaStoppedError(ReplicaDiedError):
    """The replica was stopped before it had answered a request, which took longer than it was given.

    Args:
        replica_id: Which one.
    """

    @property
    def message(self) -> str:
        """Return what happened and what to do."""
        return (
            f"Replica {self.replica_id} was stopped while it worked on the request, which took longer than the "
            "deployment's graceful_shutdown_timeout_s: set it higher, or make requests shorter."
        )


class gRPCStatusError(RayServeException):  # noqa: N801 - the name is Ray's
    """An error of a gRPC method, with the status that its client gets.

    Args:
        original_exception: What the method raised.
        code: A `grpc.StatusCode`; `INTERNAL` is sent where it is None.
        details: The text that goes with it.
    """

    def __init__(
        self, original_exception: BaseException, code: Any = None, details: str | None = None
    ) -> None:
        super().__init__(str(original_exception))
        self.original_exception = original_exception
        self.grpc_code = code
        self.grpc_details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.original_exception, self.grpc_code, self.grpc_details)


class ExternalScalerDisabledError(RayServeException):
    """Somebody outside wanted to set the number of replicas of an application that does not allow it.

    Args:
        app_name: Which one.
        deployment: The deployment that was to be scaled.
    """

    def __init__(self, app_name: str, deployment: str) -> None:
        super().__init__(app_name, deployment)
        self.app_name = app_name
        self.deployment = deployment

    def __str__(self) -> str:
        return (
            f"Cannot scale deployment {self.deployment!r} of application {self.app_name!r} from outside: set "
            "`external_scaler_enabled: true` for the application in its configuration, or "
            "serve.run(..., external_scaler_enabled=True)."
        )
