"""Ingress deployments, whose HTTP requests an ASGI application answers: FastAPI, Starlette or any other."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

from skate import cloudpickle
from skate.air import _arguments as arguments
from skate.serve._build.web_frameworks import register_reducers, resolve_routes
from skate.serve.exceptions import BackPressureError, retry_after

__all__ = ["make_ingress"]

_BUILDER = "__serve_build_asgi_app__"  # Ray's name

_methods: weakref.WeakSet[Callable[..., Any]] = weakref.WeakSet()
"""Methods of ingress classes that are routes."""


class ASGIIngressDeployment:
    """An ingress deployment without a class of its own: see `serve.ingress`. The name is Ray's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


def make_ingress(cls: type | None, app: Any) -> type:
    """Return a subclass of a deployment's class whose HTTP requests an ASGI application answers.

    Args:
        cls: The decorated class; None for a deployment without a class of its own.
        app: An ASGI application, a FastAPI router, or a function without parameters that returns an application. If
            it is None, the instance's method `__serve_build_asgi_app__` returns the application.
    """
    cls = ASGIIngressDeployment if cls is None else cls
    if not inspect.isclass(cls):
        raise ValueError(
            "@serve.ingress must be used with a class: put it below @serve.deployment, above the class."
        )
    if any("__call__" in vars(each) for each in cls.__mro__):
        raise ValueError(
            f"@serve.ingress: {cls.__name__} must not define __call__: the application answers requests."
        )
    if app is not None and not callable(app):
        must = "an ASGI application, a router of FastAPI, or a function without parameters that makes an application"
        raise TypeError(f"@serve.ingress: `app` must be {must}, got {arguments.shown(app)}.")
    if app is not None and not inspect.isroutine(app):
        app = _around_router(app)
        _give_self(cls, app)
        resolve_routes(getattr(app, "router", app))
        # A copy of the current state, so that later changes of the object do not affect this class.
        register_reducers()
        frozen = cloudpickle.dumps(app)
        build: Callable[..., Any] = lambda: _as_application(cloudpickle.loads(frozen))  # noqa: E731
    elif app is not None:
        build = app
    elif hasattr(cls, _BUILDER):
        build = lambda instance: getattr(instance, _BUILDER)()  # noqa: E731
    else:
        raise ValueError(
            f"@serve.ingress has no application for {cls.__name__}: pass one, or define the method `{_BUILDER}`, which "
            "returns an ASGI application."
        )

    def asgi_app(self: Any) -> Any:
        return _as_application(build(self) if app is None else build())

    made = type(cls.__name__, (cls,), {"_skate_asgi_app": asgi_app, "__module__": cls.__module__})
    made.__qualname__ = cls.__qualname__
    made.__doc__ = cls.__doc__
    return made


def _around_router(app: Any) -> Any:
    """Return an application that includes a FastAPI router; any other application is returned unchanged."""
    if type(app).__name__ != "APIRouter" or not type(app).__module__.startswith("fastapi"):
        return app
    from fastapi import FastAPI

    made = FastAPI()
    made.include_router(app)
    return made


def _as_application(app: Any) -> Any:
    app = _around_router(app)
    handle = getattr(app, "add_exception_handler", None)
    if handle is not None and not getattr(app, "middleware_stack", None):
        # Otherwise backpressure of another deployment would become an internal error of this one.
        handle(BackPressureError, _turned_away)
    return app


async def _turned_away(_: Any, error: Any) -> Any:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(error.message, error.status_code, {"retry-after": str(retry_after(error))})


def _give_self(cls: type, app: Any) -> None:
    """Bind FastAPI routes that are methods of the class to the replica's instance.

    FastAPI interprets `self` as a request parameter. The routes are created anew, with a signature that injects `self`.
    Routes of other classes that use the same application are removed: each class serves only its own methods.
    """
    router = getattr(app, "router", app)
    if type(router).__module__.startswith("fastapi"):
        # By name, because the class only contains the last of several methods with one name, and each may be a route.
        bodies = {(each.__module__, each.__qualname__) for each in cls.__mro__ if each is not object}
        _renew_routes(router, bodies)


def _renew_routes(router: Any, bodies: set[tuple[str, str]]) -> None:
    routes = []
    for route in router.routes:
        included = getattr(route, "original_router", None)
        endpoint = inspect.unwrap(getattr(route, "endpoint", None) or _nothing)
        if included is not None:
            _renew_routes(included, bodies)
        elif _body_of(endpoint) in bodies:
            _methods.add(endpoint)
            route = _with_instance(route)
        elif _is_method(endpoint):
            continue
        routes.append(route)
    router.routes[:] = routes


def _is_method(endpoint: Any) -> bool:
    try:
        return endpoint in _methods
    except TypeError:
        return False  # a callable object without weak references


def _body_of(endpoint: Any) -> tuple[str, str]:
    """Return the module and the qualified name of the class whose body defines a function."""
    name: str = getattr(endpoint, "__qualname__", "")
    return getattr(endpoint, "__module__", ""), name.rpartition(".")[0]


def _nothing() -> None:
    """Stand in for the endpoint of a route without one."""


def _with_instance(route: Any) -> Any:
    """Return a copy of a route whose first parameter is the replica's instance."""
    from fastapi import Depends

    signature = inspect.signature(route.endpoint)
    first, *others = signature.parameters.values()
    if first.default is inspect.Parameter.empty:
        itself = first.replace(default=Depends(_instance), kind=inspect.Parameter.KEYWORD_ONLY)
        named = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others]
        route.endpoint.__signature__ = signature.replace(parameters=[itself, *named])
    # Routes store their constructor's arguments in attributes of the same names.
    wanted = inspect.signature(type(route).__init__).parameters
    given = {name: getattr(route, name) for name in wanted if name != "self" and hasattr(route, name)}
    return type(route)(**given)


def _instance() -> Any:
    """Return the instance of the replica that handles the request."""
    from skate.serve.context import get_replica_context

    return get_replica_context().servable_object
