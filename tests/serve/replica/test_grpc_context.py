"""The context of a gRPC call and its message stream, without a server."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from skate.exceptions import RayTaskError
from skate.serve._runtime.ids import DeploymentID
from skate.serve._wire import grpc_status as status
from skate.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaDiedError,
    RequestCancelledError,
    gRPCStatusError,
)
from skate.serve.generated import serve_pb2, serve_pb2_grpc
from skate.serve.grpc_util import RayServegRPCContext, gRPCInputStream


class Origin:
    """What a server's context has."""

    def auth_context(self) -> dict[str, Any]:
        return {"kind": [b"none"]}

    def code(self) -> Any:
        return None

    def details(self) -> str:
        return ""

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("application", "app"), ("request_id", "1"), ("traceparent", "00-1-2-01")]

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def peer_identities(self) -> None:
        return None

    def peer_identity_key(self) -> None:
        return None

    def trailing_metadata(self) -> None:
        return None


def test_a_context_tells_what_the_client_sent() -> None:
    context = RayServegRPCContext(Origin())
    assert (context.application(), context.request_id(), context.traceparent()) == ("app", "1", "00-1-2-01")
    assert (context.multiplexed_model_id(), context.tracestate()) == (None, None)
    assert (context.peer(), context.auth_context()) == ("ipv4:127.0.0.1:1", {"kind": [b"none"]})


def test_a_context_survives_pickling_with_what_was_set() -> None:
    context = RayServegRPCContext(Origin())
    context.set_code(grpc.StatusCode.ABORTED)
    context.set_details("why")
    context.set_trailing_metadata([("a", "b")])
    context.set_compression(grpc.Compression.Gzip)
    again = pickle.loads(pickle.dumps(context))
    assert (again.code(), again.details()) == (grpc.StatusCode.ABORTED, "why")
    assert again.trailing_metadata() == [("a", "b")]


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


async def test_a_stream_is_read_to_its_end() -> None:
    stream = gRPCInputStream(numbers(3))
    assert not stream.is_exhausted
    assert [number async for number in stream] == [0, 1, 2]
    assert stream.is_exhausted
    assert not stream.is_cancelled()
    assert [number async for number in stream] == []


async def test_a_stream_that_is_cancelled_gives_nothing_further() -> None:
    gone = asyncio.Event()
    stream = gRPCInputStream(numbers(3), cancel_event=gone)
    assert await anext(stream) == 0
    gone.set()
    assert stream.is_cancelled()
    assert [number async for number in stream] == []
    other = gRPCInputStream(numbers(3))
    other.cancel()
    assert [number async for number in other] == []


def code_of(error: BaseException) -> str:
    number, _ = status.status_of(error)
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackPressureError(1, 1), "RESOURCE_EXHAUSTED"),
        (DeploymentUnavailableError(DeploymentID("d", "a")), "UNAVAILABLE"),
        (ReplicaDiedError("r"), "UNAVAILABLE"),
        (TimeoutError(), "DEADLINE_EXCEEDED"),
        (RequestCancelledError("1"), "CANCELLED"),
        (gRPCStatusError(ValueError("x"), grpc.StatusCode.DATA_LOSS), "DATA_LOSS"),
        (gRPCStatusError(ValueError("x")), "INTERNAL"),
        (ValueError("x"), "INTERNAL"),
        (
            RayTaskError.from_exception("f", BackPressureError(1, 1)).as_instanceof_cause(),
            "RESOURCE_EXHAUSTED",
        ),
    ],
)
def test_errors_have_statuses(error: BaseException, code: str) -> None:
    assert code_of(error) == code


def test_the_text_of_an_error_is_told_and_has_an_end() -> None:
    assert status.status_of(gRPCStatusError(ValueError("x"), details="y"))[1] == "y"
    assert status.status_of(ValueError())[1] == "ValueError"
    assert status.status_of(RayTaskError.from_exception("f", KeyError("k")))[1] == "'k'"
    assert len(status.status_of(ValueError("x" * 100_000))[1]) < 5000


def test_messages_survive_pickling() -> None:
    message = serve_pb2.UserDefinedMessage(name="a", num=1)
    assert pickle.loads(pickle.dumps(message)) == message


def test_messages_live_beside_those_of_ray() -> None:
    ray_pb2 = pytest.importorskip("ray.serve.generated.serve_pb2")
    ours = serve_pb2.UserDefinedMessage(name="a", foo="b", num=3)
    assert ray_pb2.UserDefinedMessage.FromString(ours.SerializeToString()).num == 3
    names = ("RayServeAPIService", "UserDefinedService", "FruitService")
    for name in names:
        mine, theirs = (each.DESCRIPTOR.services_by_name[name] for each in (serve_pb2, ray_pb2))
        assert mine.full_name == theirs.full_name
        assert [method.name for method in mine.methods] == [method.name for method in theirs.methods]


def test_a_servicer_without_methods_of_its_own_has_none() -> None:
    context = Origin()
    context.set_code = context.set_details = lambda _: None  # type: ignore[attr-defined]
    with pytest.raises(NotImplementedError):
        serve_pb2_grpc.UserDefinedServiceServicer().Method1(None, context)
