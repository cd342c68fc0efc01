"""Messages of the services that Serve answers itself, and of those that examples and tests of Ray Serve use.

Written by hand where a compiler would write bytes: the descriptors are made here when the module is imported, so that
they work with any version of protobuf. They live in a pool of their own, since a process may have Ray's module of the
same contents too. As in Ray, the package is `ray.serve`: clients know the services by that name.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]  # it has no types
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

__all__ = [
    "DESCRIPTOR",
    "FruitAmounts",
    "FruitCosts",
    "HealthzRequest",
    "HealthzResponse",
    "ListApplicationsRequest",
    "ListApplicationsResponse",
    "UserDefinedMessage",
    "UserDefinedMessage2",
    "UserDefinedResponse",
    "UserDefinedResponse2",
]

_PACKAGE = "ray.serve"
_STRING, _INT64, _FLOAT = "TYPE_STRING", "TYPE_INT64", "TYPE_FLOAT"

# The fields of each message, numbered from 1; a list is a repeated field.
_MESSAGES: dict[str, dict[str, str | list[str]]] = {
    "ListApplicationsRequest": {},
    "ListApplicationsResponse": {"application_names": [_STRING]},
    "HealthzRequest": {},
    "HealthzResponse": {"message": _STRING},
    "UserDefinedMessage": {"name": _STRING, "foo": _STRING, "num": _INT64},
    "UserDefinedResponse": {"greeting": _STRING, "num_x2": _INT64},
    "UserDefinedMessage2": {},
    "UserDefinedResponse2": {"greeting": _STRING},
    "FruitAmounts": {"orange": _INT64, "apple": _INT64, "banana": _INT64},
    "FruitCosts": {"costs": _FLOAT},
}

# What each method takes and gives, and which of the two are streams.
_SERVICES: dict[str, dict[str, tuple[str, str, bool, bool]]] = {
    "RayServeAPIService": {
        "ListApplications": ("ListApplicationsRequest", "ListApplicationsResponse", False, False),
        "Healthz": ("HealthzRequest", "HealthzResponse", False, False),
    },
    "UserDefinedService": {
        "__call__": ("UserDefinedMessage", "UserDefinedResponse", False, False),
        "Method1": ("UserDefinedMessage", "UserDefinedResponse", False, False),
        "Method2": ("UserDefinedMessage2", "UserDefinedResponse2", False, False),
        "Streaming": ("UserDefinedMessage", "UserDefinedResponse", False, True),
        "ClientStreaming": ("UserDefinedMessage", "UserDefinedResponse", True, False),
        "BidiStreaming": ("UserDefinedMessage", "UserDefinedResponse", True, True),
    },
    "FruitService": {"FruitStand": ("FruitAmounts", "FruitCosts", False, False)},
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name="skate/serve.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = made.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            repeated = isinstance(kind, list)
            message.field.add(
                name=field,
                number=number,
                type=kind[0] if repeated else kind,
                label="LABEL_REPEATED" if repeated else "LABEL_OPTIONAL",
            )
    for name, methods in _SERVICES.items():
        service = made.service.add(name=name)
        for method, (taken, given, streams_in, streams_out) in methods.items():
            service.method.add(
                name=method,
                input_type=f".{_PACKAGE}.{taken}",
                output_type=f".{_PACKAGE}.{given}",
                client_streaming=streams_in,
                server_streaming=streams_out,
            )
    return made


def _message(name: str) -> Any:
    made = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name[name])
    made.__module__ = __name__  # where pickle finds it
    return made


_pool = descriptor_pool.DescriptorPool()
DESCRIPTOR = _pool.AddSerializedFile(_file().SerializeToString())

ListApplicationsRequest = _message("ListApplicationsRequest")
ListApplicationsResponse = _message("ListApplicationsResponse")
HealthzRequest = _message("HealthzRequest")
HealthzResponse = _message("HealthzResponse")
UserDefinedMessage = _message("UserDefinedMessage")
UserDefinedResponse = _message("UserDefinedResponse")
UserDefinedMessage2 = _message("UserDefinedMessage2")
UserDefinedResponse2 = _message("UserDefinedResponse2")
FruitAmounts = _message("FruitAmounts")
FruitCosts = _message("FruitCosts")
