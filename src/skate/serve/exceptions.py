"""The exceptions of Serve, under Ray's names.

They keep their fields when pickled, because replicas send them to callers.
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
    """The base class of all Serve exceptions."""


class ApplicationError(RayServeException, ValueError):
    """The deployments of an application are bound to each other in an unsupported way."""


class DeploymentSerializationError(RayServeException, TypeError):
    """A deployment, or an argument of its constructor, cannot be pickled."""


class DeploymentConfigError(RayServeException, ValueError):
    """Options of a deployment contradict each other.

    Args:
        message: The contradiction, and how to resolve it.
        options: The names of the options.
    """

    def __init__(self, message: str, options: tuple[str, ...] = ()) -> None:
        super().__init__(message, options)
        self.message = message
        self.options = options

    def __str__(self) -> str:
        return self.message


class ListenError(RayServeException, OSError, RuntimeError):
    """Serve cannot listen at the configured address. It is a RuntimeError, as in Ray, and an OSError.

    Args:
        errno: The number of the system error.
        strerror: The problem, and how to solve it.
    """


class BackPressureError(RayServeException):
    """A request was rejected because too many requests were queued.

    Args:
        num_queued_requests: The number of queued requests.
        max_queued_requests: The deployment's `max_queued_requests`.
        status_code: The status that an HTTP client receives.
        retry_after_s: The seconds after which an HTTP client should retry.
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
        """The error message with both numbers."""
        return (
            f"Request dropped due to backpressure: {self.num_queued_requests} requests wait, and "
            f"max_queued_requests is {self.max_queued_requests}."
        )

    def __str__(self) -> str:
        return self.message


def retry_after(error: BackPressureError) -> int:
    """Return the value of the Retry-After header: whole seconds."""
    return 1 if error.retry_after_s is None else math.ceil(error.retry_after_s)


class RequestCancelledError(RayServeException, TaskCancelledError):
    """A request was cancelled: by its caller, by a disconnect of its client, or because the deployment stopped.

    Args:
        request_id: The id of the request, if known.
    """

    def __init__(self, request_id: str | None = None) -> None:
        super().__init__(*(() if request_id is None else (request_id,)))
        self.request_id = request_id

    def __str__(self) -> str:
        return f"Request {self.request_id} was cancelled." if self.request_id else "Request was cancelled."


class DeploymentUnavailableError(RayServeException):
    """A deployment takes no requests: it failed to deploy, is being deleted, or cannot have replicas.

    Args:
        deployment_id: The id of the deployment.
        reason: The reason, if it is not one of the first two.
    """

    def __init__(self, deployment_id: DeploymentID, reason: str = "") -> None:
        super().__init__(deployment_id, reason)
        self.deployment_id = deployment_id
        self.reason = reason

    @property
    def message(self) -> str:
        """The error message."""
        reason = self.reason or "it failed to deploy or is being deleted. See `serve.status()`."
        return f"{self.deployment_id} is unavailable: {reason}"

    def __str__(self) -> str:
        return self.message


class ReplicaUnavailableError(RayServeException):
    """The replica that a request was sent to takes no requests, and no other replica may process it.

    Args:
        replica_id: The id of the replica.
    """

    def __init__(self, replica_id: str) -> None:
        super().__init__(replica_id)
        self.replica_id = replica_id

    @property
    def message(self) -> str:
        """The error message, and what to do."""
        return f"Replica {self.replica_id} is unavailable: it stopped or is stopping. Call the deployment instead."

    def __str__(self) -> str:
        return self.message


class ReplicaDiedError(ReplicaUnavailableError, RayActorError):
    """The replica died while it processed a request that may not run twice.

    Args:
        replica_id: The id of the replica.
    """

    def __init__(self, replica_id: str) -> None:
        RayActorError.__init__(self, replica_id)
        self.replica_id = replica_id

    @property
    def message(self) -> str:
        """The error message, including the unknown outcome."""
        return (
            f"Replica {self.replica_id} died while it processed the request, which may have been executed partially. "
            "Serve retries requests that may run twice on another replica: idempotent HTTP methods, and requests "
            "with an Idempotency-Key."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.replica_id,)


class ReplicaStoppedError(ReplicaDiedError):
    """The replica was stopped before it had answered a request, because the request exceeded the grace period.

    Args:
        replica_id: The id of the replica.
    """

    @property
    def message(self) -> str:
        """The error message, and what to do."""
        return (
            f"Replica {self.replica_id} was stopped while it processed the request, which took longer than the "
            "deployment's graceful_shutdown_timeout_s: increase it, or make requests shorter."
        )


class gRPCStatusError(RayServeException):  # noqa: N801 - the name is Ray's
    """An error of a gRPC method, with the status for its client.

    Args:
        original_exception: The exception that the method raised.
        code: A `grpc.StatusCode`; None for `INTERNAL`.
        details: The details of the status.
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
    """A request to scale a deployment came from outside, and the application does not allow it.

    Args:
        app_name: The name of the application.
        deployment: The name of the deployment.
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
