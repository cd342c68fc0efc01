"""The exceptions of Serve: base classes, messages and pickling."""

from __future__ import annotations

import pickle

import pytest

from skate.exceptions import RayActorError, RayError, TaskCancelledError
from skate.serve import exceptions
from skate.serve._runtime.ids import DeploymentID
from skate.serve.exceptions import (
    ApplicationError,
    BackPressureError,
    DeploymentConfigError,
    DeploymentSerializationError,
    DeploymentUnavailableError,
    ExternalScalerDisabledError,
    ListenError,
    RayServeException,
    ReplicaDiedError,
    ReplicaStoppedError,
    ReplicaUnavailableError,
    RequestCancelledError,
    gRPCStatusError,
)

EXAMPLES = [
    RayServeException("what happened"),
    BackPressureError(num_queued_requests=3, max_queued_requests=2, status_code=429, retry_after_s=1.5),
    RequestCancelledError("request-1"),
    RequestCancelledError(),
    DeploymentUnavailableError(DeploymentID("Model", "app")),
    ReplicaUnavailableError("replica-1"),
    gRPCStatusError(ValueError("wrong"), code=3, details="more"),
    DeploymentConfigError("a and b exclude each other", ("a", "b")),
    ExternalScalerDisabledError("app", "Model"),
    ReplicaDiedError("replica-1"),
    ReplicaStoppedError("replica-1"),
    ListenError(98, "the port is in use"),
    ApplicationError("it contains itself"),
    DeploymentSerializationError("there is a lock in it"),
]


def test_there_is_an_example_of_each() -> None:
    kinds = {name for name in exceptions.__all__ if isinstance(getattr(exceptions, name), type)}
    assert {type(each).__name__ for each in EXAMPLES} == kinds


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_words_and_fields_when_it_travels(error: RayServeException) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert repr(vars(arrived)) == repr(vars(error))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_all_are_errors_of_serve(error: RayServeException) -> None:
    assert isinstance(error, RayServeException)


def test_a_cancelled_request_is_a_cancelled_task() -> None:
    error = RequestCancelledError("request-1")
    assert isinstance(error, TaskCancelledError)
    assert isinstance(error, RayError)
    assert str(error) == "Request request-1 was cancelled."
    assert str(RequestCancelledError()) == "Request was cancelled."


def test_a_replica_that_is_gone_is_an_actor_that_is_gone() -> None:
    assert isinstance(ReplicaDiedError("app#Model#1"), RayActorError)
    stopped = ReplicaStoppedError("app#Model#1")
    assert isinstance(stopped, RayActorError)
    assert "app#Model#1 was stopped" in str(stopped)
    assert "graceful_shutdown_timeout_s" in str(stopped)


def test_who_cannot_listen_says_so_to_those_who_know_ray_and_to_those_who_know_sockets() -> None:
    error = ListenError(98, "the port is in use")
    assert isinstance(error, RuntimeError)
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror) == (98, "the port is in use")


def test_backpressure_says_both_numbers() -> None:
    error = EXAMPLES[1]
    assert isinstance(error, BackPressureError)
    assert str(error) == error.message
    assert (
        error.message == "Request dropped due to backpressure: 3 requests wait, and max_queued_requests is 2."
    )
    assert (error.status_code, error.retry_after_s) == (429, 1.5)
    assert BackPressureError(3, 2).status_code == 503


def test_what_is_unavailable_is_named() -> None:
    assert "Deployment(name='Model', app='app') is unavailable" in str(EXAMPLES[4])
    assert "Replica replica-1 is unavailable" in str(EXAMPLES[5])


def test_a_grpc_status_keeps_what_was_raised() -> None:
    error = pickle.loads(pickle.dumps(EXAMPLES[6]))
    assert isinstance(error.original_exception, ValueError)
    assert (str(error), error.grpc_code, error.grpc_details) == ("wrong", 3, "more")
