"""Clients and servicers for the services in `serve_pb2`, made from their descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc  # type: ignore[import-untyped]  # it has no types
from google.protobuf import message_factory  # type: ignore[import-untyped]

from skate.serve.generated.serve_pb2 import DESCRIPTOR

__all__ = [
    "FruitServiceServicer",
    "FruitServiceStub",
    "RayServeAPIServiceServicer",
    "RayServeAPIServiceStub",
    "UserDefinedServiceServicer",
    "UserDefinedServiceStub",
    "add_FruitServiceServicer_to_server",
    "add_RayServeAPIServiceServicer_to_server",
    "add_UserDefinedServiceServicer_to_server",
]


def _kind(method: Any) -> str:
    taken = "stream" if method.client_streaming else "unary"
    return f"{taken}_{'stream' if method.server_streaming else 'unary'}"


def _stub(service: Any) -> type:
    def __init__(self: Any, channel: grpc.Channel) -> None:  # noqa: N807 - it becomes the constructor of the class
        for method in service.methods:
            call = getattr(channel, _kind(method))(
                f"/{service.full_name}/{method.name}",
                request_serializer=message_factory.GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method.name, call)

    return type(f"{service.name}Stub", (), {"__init__": __init__, "__module__": __name__})


def _servicer(service: Any) -> type:
    def refuse(self: Any, request: Any, context: Any) -> None:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")

    return type(
        f"{service.name}Servicer",
        (),
        {"__module__": __name__, **{method.name: refuse for method in service.methods}},
    )


def _adder(service: Any) -> Callable[[Any, Any], None]:
    def add(servicer: Any, server: Any) -> None:
        handlers = {
            method.name: getattr(grpc, f"{_kind(method)}_rpc_method_handler")(
                getattr(servicer, method.name),
                request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
                response_serializer=message_factory.GetMessageClass(method.output_type).SerializeToString,
            )
            for method in service.methods
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))

    add.__name__ = add.__qualname__ = f"add_{service.name}Servicer_to_server"
    return add


_services = DESCRIPTOR.services_by_name

RayServeAPIServiceStub = _stub(_services["RayServeAPIService"])
RayServeAPIServiceServicer = _servicer(_services["RayServeAPIService"])
add_RayServeAPIServiceServicer_to_server = _adder(_services["RayServeAPIService"])  # noqa: N816 - as compilers name it

UserDefinedServiceStub = _stub(_services["UserDefinedService"])
UserDefinedServiceServicer = _servicer(_services["UserDefinedService"])
add_UserDefinedServiceServicer_to_server = _adder(_services["UserDefinedService"])  # noqa: N816

FruitServiceStub = _stub(_services["FruitService"])
FruitServiceServicer = _servicer(_services["FruitService"])
add_FruitServiceServicer_to_server = _adder(_services["FruitService"])  # noqa: N816
