"""Calls over gRPC, with real clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from skate import serve
from skate.serve._controller.client import connect
from skate.serve.config import gRPCOptions
from skate.serve.generated import serve_pb2, serve_pb2_grpc
from skate.serve.grpc_util import RayServegRPCContext, gRPCInputStream
from tests.serve.conftest import light

pytestmark = pytest.mark.usefixtures("engine")

SERVICERS = [
    "skate.serve.generated.serve_pb2_grpc.add_UserDefinedServiceServicer_to_server",
    "ray.serve.generated.serve_pb2_grpc.add_FruitServiceServicer_to_server",  # as files for Ray name it
]
Message, Response = serve_pb2.UserDefinedMessage, serve_pb2.UserDefinedResponse


class Clients:
    """Clients of one server."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self.api = serve_pb2_grpc.RayServeAPIServiceStub(channel)
        self.user = serve_pb2_grpc.UserDefinedServiceStub(channel)
        self.fruit = serve_pb2_grpc.FruitServiceStub(channel)


def address() -> str:
    client = connect()
    assert client is not None
    found = client.grpc_address()
    assert found is not None
    return f"{found[0]}:{found[1]}"


@pytest.fixture
def clients(engine: str, serve_of_module: None) -> Iterator[Clients]:
    """Run Serve with gRPC on a free port; all applications of the test are deleted after it."""
    serve.start(http_options={"port": 0}, grpc_options=gRPCOptions(port=0, grpc_servicer_functions=SERVICERS))
    with grpc.insecure_channel(address()) as channel:
        yield Clients(channel)
    client = connect()
    assert client is not None
    client.delete(list(client.status().applications), wait=True)


@light
class Greeter:
    async def __call__(self, message: Message) -> Response:
        return Response(greeting=f"Hello {message.name} from {message.foo}", num_x2=2 * message.num)

    def Method1(self, message: Message) -> Response:  # noqa: N802 - the names are those of the service
        return Response(greeting="one")

    async def Method2(self, message: serve_pb2.UserDefinedMessage2) -> serve_pb2.UserDefinedResponse2:  # noqa: N802
        return serve_pb2.UserDefinedResponse2(greeting=serve.get_multiplexed_model_id())

    async def Streaming(self, message: Message) -> AsyncIterator[Response]:  # noqa: N802
        for number in range(message.num):
            yield Response(num_x2=number)

    async def ClientStreaming(self, messages: gRPCInputStream[Message]) -> Response:  # noqa: N802
        numbers = [message.num async for message in messages]
        assert messages.is_exhausted
        return Response(greeting=str(len(numbers)), num_x2=sum(numbers))

    async def BidiStreaming(self, messages: gRPCInputStream[Message]) -> AsyncIterator[Response]:  # noqa: N802
        async for message in messages:
            yield Response(greeting=message.name)


def numbered(count: int) -> Iterator[Message]:
    for number in range(count):
        yield Message(name=str(number), num=number)


def code_of(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def test_all_four_kinds_of_methods_are_answered(clients: Clients) -> None:
    serve.run(Greeter.bind())
    user = clients.user
    assert user.__call__(Message(name="you", foo="me", num=21)) == Response(
        greeting="Hello you from me", num_x2=42
    )
    assert user.Method1(Message()).greeting == "one"
    assert [each.num_x2 for each in user.Streaming(Message(num=200))] == list(range(200))
    assert user.ClientStreaming(numbered(100)) == Response(greeting="100", num_x2=4950)
    assert [each.greeting for each in user.BidiStreaming(numbered(100))] == [str(n) for n in range(100)]


def test_streams_may_be_empty(clients: Clients) -> None:
    serve.run(Greeter.bind())
    assert clients.user.ClientStreaming(numbered(0)).greeting == "0"
    assert list(clients.user.BidiStreaming(numbered(0))) == []
    assert list(clients.user.Streaming(Message(num=0))) == []


def test_both_sides_of_a_stream_take_turns(clients: Clients) -> None:
    serve.run(Greeter.bind())
    turn = threading.Semaphore(1)

    def one_by_one() -> Iterator[Message]:
        for number in range(5):
            assert turn.acquire(timeout=20)
            yield Message(name=str(number))

    seen = []
    for answer in clients.user.BidiStreaming(one_by_one()):
        seen.append(answer.greeting)
        turn.release()
    assert seen == list("01234")


def test_serve_answers_what_it_is_asked_itself(clients: Clients) -> None:
    serve.run(Greeter.bind(), name="a", route_prefix="/a")
    serve.run(Greeter.bind(), name="b", route_prefix="/b")
    assert clients.api.Healthz(serve_pb2.HealthzRequest()).message == "success"
    found = clients.api.ListApplications(serve_pb2.ListApplicationsRequest()).application_names
    assert sorted(found) == ["a", "b"]


def test_the_application_is_named_where_there_are_several(clients: Clients) -> None:
    @light
    class Says:
        def __init__(self, what: str) -> None:
            self.what = what

        async def __call__(self, message: Message) -> Response:
            return Response(greeting=self.what)

    serve.run(Says.bind("a"), name="a", route_prefix="/a")
    call = clients.user.__call__
    assert call(Message()).greeting == "a"
    serve.run(Says.bind("b"), name="b", route_prefix="/b")
    assert call(Message(), metadata=(("application", "b"),)).greeting == "b"
    code, details = code_of(lambda: call(Message()))
    assert (code, "Application metadata not set" in details) == (grpc.StatusCode.NOT_FOUND, True)
    code, details = code_of(lambda: call(Message(), metadata=(("application", "c"),)))
    assert (code, "Application 'c' not found." in details) == (grpc.StatusCode.NOT_FOUND, True)
    code, _ = code_of(lambda: clients.user.ClientStreaming(numbered(3), metadata=(("application", "c"),)))
    assert code is grpc.StatusCode.NOT_FOUND


def test_methods_that_nobody_has(clients: Clients) -> None:
    serve.run(Greeter.bind())
    code, details = code_of(lambda: clients.fruit.FruitStand(serve_pb2.FruitAmounts()))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "FruitStand" in details
    assert "Streaming" in details
    unknown = clients.channel.unary_unary("/no.Service/Method")
    assert code_of(lambda: unknown(b""))[0] is grpc.StatusCode.UNIMPLEMENTED


def test_every_answer_has_a_request_id(clients: Clients) -> None:
    @light
    class Ids:
        async def __call__(self, message: Message) -> Response:
            context = serve.context._get_request()
            assert context is not None
            return Response(greeting=context.request_id)

    serve.run(Ids.bind())
    call = clients.user.__call__.with_call
    response, told = call(Message(), metadata=(("request_id", "mine"),))
    assert response.greeting == dict(told.trailing_metadata())["request_id"] == "mine"
    response, told = call(Message())
    assert response.greeting == dict(told.trailing_metadata())["request_id"] != ""


def test_the_model_is_named_in_metadata(clients: Clients) -> None:
    serve.run(Greeter.bind())
    found = clients.user.Method2(serve_pb2.UserDefinedMessage2(), metadata=(("multiplexed_model_id", "m"),))
    assert found.greeting == "m"


@light
class Contextual:
    """Sets what it is told on the context, and raises if it is told to."""

    def _act(self, message: Message, context: RayServegRPCContext) -> Response:
        if message.num:
            context.set_code(next(code for code in grpc.StatusCode if code.value[0] == message.num))
        if message.foo:
            context.set_details(message.foo)
        context.set_trailing_metadata([("x", context.peer()), ("y-bin", b"\x00")])  # type: ignore[list-item]
        if message.name:
            raise RuntimeError(message.name)
        return Response(greeting=str(dict(context.invocation_metadata()).get("question")))

    def __call__(self, message: Message, grpc_context: RayServegRPCContext) -> Response:
        return self._act(message, grpc_context)

    async def Streaming(self, message: Message, grpc_context: RayServegRPCContext) -> AsyncIterator[Response]:  # noqa: N802
        yield self._act(message, grpc_context)

    async def ClientStreaming(  # noqa: N802
        self, messages: gRPCInputStream[Message], grpc_context: RayServegRPCContext
    ) -> Response:
        return self._act([message async for message in messages][-1], grpc_context)


@pytest.mark.parametrize("kind", ["unary", "stream", "client"])
def test_a_method_may_set_status_and_metadata(clients: Clients, kind: str) -> None:
    serve.run(Contextual.bind())
    user = clients.user

    def call(message: Message, **options: Any) -> Any:
        if kind == "stream":
            return list(user.Streaming(message, **options))
        if kind == "client":
            return user.ClientStreaming(iter([message]), **options)
        return user.__call__(message, **options)

    metadata = (("question", "why"),)
    answered = call(Message(), metadata=metadata)
    assert (answered[0] if kind == "stream" else answered).greeting == "why"
    with pytest.raises(grpc.RpcError) as caught:
        call(Message(num=grpc.StatusCode.DATA_LOSS.value[0], foo="gone"))
    error: Any = caught.value
    assert (error.code(), error.details()) == (grpc.StatusCode.DATA_LOSS, "gone")
    trailing = dict(error.trailing_metadata())
    assert trailing["x"].startswith("ipv4:127.0.0.1:")
    assert trailing["y-bin"] == b"\x00"
    assert trailing["request_id"]
    assert code_of(lambda: call(Message(name="broken"))) == (grpc.StatusCode.INTERNAL, "broken")
    raised = code_of(lambda: call(Message(name="broken", num=grpc.StatusCode.ABORTED.value[0])))
    assert raised == (grpc.StatusCode.ABORTED, "broken")


def test_a_parameter_too_many_is_an_error(clients: Clients) -> None:
    @light
    class Wrong:
        def __call__(self, message: Message, contxt: Any) -> Response:
            return Response()

        def Streaming(self, message: Message) -> Response:  # noqa: N802
            return Response()

        def Method1(self, message: Message) -> Iterator[Response]:  # noqa: N802
            yield Response()

    serve.run(Wrong.bind())
    code, details = code_of(lambda: clients.user.__call__(Message()))
    assert code is grpc.StatusCode.INTERNAL
    assert "contxt" in details
    assert "use yield" in code_of(lambda: list(clients.user.Streaming(Message())))[1]
    assert "return one" in code_of(lambda: clients.user.Method1(Message()))[1]


@light(graceful_shutdown_timeout_s=0.1)
class Patient:
    """Never answers, and tells when it was called and when it was cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    async def __call__(self, message: Message) -> Response:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.over.set()
        return Response()

    async def Streaming(self, message: Message) -> AsyncIterator[Response]:  # noqa: N802
        yield Response(greeting="first")
        await self(message)

    async def BidiStreaming(self, messages: gRPCInputStream[Message]) -> AsyncIterator[Response]:  # noqa: N802
        self.begun.set()
        try:
            async for message in messages:
                yield Response(greeting=message.name)
        finally:
            self.over.set()

    async def has_begun(self) -> None:
        await self.begun.wait()

    async def is_over(self) -> bool:
        await self.over.wait()
        return True


@pytest.mark.parametrize("kind", ["unary", "stream", "both"])
def test_a_client_that_cancels_cancels_the_work(clients: Clients, kind: str) -> None:
    handle = serve.run(Patient.bind())
    never = threading.Event()

    def hanging() -> Iterator[Message]:
        yield Message()
        never.wait(60)

    user = clients.user
    call = (
        user.__call__.future(Message())
        if kind == "unary"
        else user.Streaming(Message())
        if kind == "stream"
        else user.BidiStreaming(hanging())
    )
    handle.has_begun.remote().result(timeout_s=30)
    call.cancel()
    assert handle.is_over.remote().result(timeout_s=30)
    never.set()


def test_a_deadline_of_the_client_cancels_the_work(clients: Clients) -> None:
    handle = serve.run(Patient.bind())
    assert (
        code_of(lambda: clients.user.__call__(Message(), timeout=0.3))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    )
    assert handle.is_over.remote().result(timeout_s=30)


def test_a_stream_whose_client_breaks_off_is_over(clients: Clients) -> None:
    serve.run(Greeter.bind())

    def broken() -> Iterator[Message]:
        yield Message()
        raise RuntimeError("the client's own trouble")

    with pytest.raises(grpc.RpcError):
        clients.user.ClientStreaming(broken())
    assert clients.user.Method1(Message()).greeting == "one"


def test_calls_over_the_limit_are_turned_away(clients: Clients) -> None:
    serve.run(Patient.options(max_ongoing_requests=1, max_queued_requests=1).bind())
    calls = [clients.user.__call__.future(Message()) for _ in range(4)]
    refused = threading.Event()
    for call in calls:
        call.add_done_callback(lambda _: refused.set())
    assert refused.wait(30)
    code, details = code_of(next(call for call in calls if call.done()).result)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details.startswith("Request dropped due to backpressure")
    for call in calls:
        call.cancel()


def test_large_messages_are_passed_on(clients: Clients) -> None:
    serve.run(Greeter.bind())
    name = "x" * 8_000_000
    with grpc.insecure_channel(address(), options=[("grpc.max_receive_message_length", -1)]) as channel:
        user = serve_pb2_grpc.UserDefinedServiceStub(channel)
        assert len(user.__call__(Message(name=name)).greeting) > 8_000_000


def test_a_slow_reader_holds_the_replica_back(clients: Clients) -> None:
    @light
    class Quick:
        def __init__(self) -> None:
            self.produced = 0

        async def Streaming(self, message: Message) -> AsyncIterator[Response]:  # noqa: N802
            for _ in range(3000):
                self.produced += 1
                yield Response(greeting="x" * 50_000)

        async def count(self) -> int:
            return self.produced

    handle = serve.run(Quick.bind())
    answers = clients.user.Streaming(Message())
    next(answers)
    seen = -1
    while (now := handle.count.remote().result(timeout_s=30)) != seen:
        seen = now
        threading.Event().wait(0.3)  # nobody tells when something stops
    assert seen < 2000
    assert sum(1 for _ in answers) == 2999


def test_bytes_that_are_no_message_are_refused(clients: Clients) -> None:
    serve.run(Greeter.bind())
    raw = clients.channel.unary_unary("/ray.serve.UserDefinedService/Method1")
    assert code_of(lambda: raw(b"\xff\xff\xff\xff"))[0] is grpc.StatusCode.INTERNAL
    assert clients.user.Method1(Message()).greeting == "one"


def test_errors_of_deployments_further_on_are_told(clients: Clients) -> None:
    @light
    class Further:
        async def __call__(self) -> str:
            raise ValueError("further on")

    @light
    class Nearer:
        def __init__(self, further: Any) -> None:
            self.further = further

        async def __call__(self, message: Message) -> Response:
            return Response(greeting=await self.further.remote())

    serve.run(Nearer.bind(Further.bind()))
    assert code_of(lambda: clients.user.__call__(Message())) == (grpc.StatusCode.INTERNAL, "further on")


def test_a_client_may_ask_which_services_there_are(clients: Clients) -> None:
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    database = ProtoReflectionDescriptorDatabase(clients.channel)
    found = set(database.get_services())
    assert {"ray.serve.UserDefinedService", "ray.serve.RayServeAPIService"} <= found
    assert database.FindFileContainingSymbol("ray.serve.UserDefinedService").package == "ray.serve"
