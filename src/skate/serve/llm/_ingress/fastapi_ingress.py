"""The ingress as a FastAPI application, for programs that add endpoints to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from skate import serve
from skate.serve.llm._ingress.ingress import DEFAULT_ENDPOINTS
from skate.serve.llm._ingress.responses import error_response
from skate.serve.llm._protocol.base import RequestError

if TYPE_CHECKING:
    from fastapi import FastAPI

__all__ = ["make_fastapi_ingress"]

_Decorate = Callable[..., Any]


def make_fastapi_ingress(
    cls: type,
    *,
    endpoint_map: Mapping[str, Callable[[FastAPI], _Decorate]] | None = None,
    app: FastAPI | None = None,
) -> type:
    """Return a class for an ingress deployment, in which the methods of a class answer the requests of FastAPI routes.

    `build_openai_app` does not need this function. Use it to add endpoints with FastAPI:

        endpoints = {"shout": lambda app: app.post("/shout")}
        serve.deployment(make_fastapi_ingress(Shouter, endpoint_map=endpoints)).bind(...)

    Args:
        cls: The class.
        endpoint_map: For each method, a function that takes the application and returns the decorator of the route.
            Defaults to all endpoints of `OpenAiIngress`.
        app: The application. Defaults to a new one.

    Raises:
        ImportError: If FastAPI is not installed.
    """
    try:
        from fastapi import FastAPI
        from fastapi.exceptions import RequestValidationError
    except ImportError as error:
        raise ImportError("make_fastapi_ingress needs fastapi: pip install fastapi") from error
    app = FastAPI() if app is None else app
    app.add_exception_handler(RequestError, _handle_request_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    members: dict[str, Any] = {}
    for name, route in (_default_endpoints() if endpoint_map is None else endpoint_map).items():
        members[name] = route(app)(getattr(cls, name))
    # A new class, so that `cls` itself gets no routes.
    routed = type(cls.__name__, (cls,), {**members, "__module__": cls.__module__})
    routed.__qualname__ = cls.__qualname__
    return serve.ingress(app)(routed)


def _default_endpoints() -> dict[str, Callable[[FastAPI], _Decorate]]:
    # One path for each method: FastAPI binds a route to the method's function.
    found: dict[str, Callable[[FastAPI], _Decorate]] = {}
    for verb, path, name, _ in DEFAULT_ENDPOINTS:
        if name not in found and name != "transcriptions":
            found[name] = lambda app, verb=verb, path=path: app.api_route(  # type: ignore[misc]  # bound in each iteration
                path, methods=[verb], response_model=None
            )
    return found


async def _handle_request_error(_: Any, error: Exception) -> Any:
    assert isinstance(error, RequestError)
    return error_response(error)


async def _handle_validation_error(_: Any, error: Any) -> Any:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part != "body"]
    field = first.get("ctx", {}).get("field")
    param = ".".join([*path, field] if field else path) or None
    where = f"`{'.'.join(path)}`: " if path else ""
    return error_response(RequestError(f"{where}{first['msg']}", param=param))
