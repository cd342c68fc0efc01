"""Deployments that answer HTTP with an application of their own: FastAPI, Starlette, or anything that speaks ASGI."""

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
"""Methods of classes that have been given an application."""


class ASGIIngressDeployment:
    """A deployment that is nothing but its application: see `serve.ingress`. The name is Ray's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs


def make_ingress(cls: type | None, app: Any) -> type:
    """Return a subclass of a deployment's class whose HTTP requests an application answers.

    Args:
        cls: The class that was decorated; None for one that has nothing of its own.
        app: An ASGI application, a router of FastAPI, or a function without parameters that makes an application. If
            it is None, the method `__serve_build_asgi_app__` of the class makes one when the instance has been made.
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
        # As it is now: a later change of the user's object is not meant for this class.
        register_reducers()
        frozen = cloudpickle.dumps(app)
        build: Callable[..., Any] = lambda: _as_application(cloudpickle.loads(frozen))  # noqa: E731
    elif app is not None:
        build = app
    elif hasattr(cls, _BUILDER):
        build = lambda instance: getattr(instance, _BUILDER)()  # noqa: E731
    else:
        raise ValueError(
            f"serve.ingress() called without an app argument requires {cls.__name__} to define `{_BUILDER}`, which "
            "returns an ASGI application."
        )

    def asgi_app(self: Any) -> Any:
        return _as_application(build(self) if app is None else build())

    made = type(cls.__name__, (cls,), {"_skate_asgi_app": asgi_app, "__module__": cls.__module__})
    made.__qualname__ = cls.__qualname__
    made.__doc__ = cls.__doc__
    return made


def _around_router(app: Any) -> Any:
    """Return an application around what is a router of FastAPI; all else is one already."""
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
        # Otherwise what a deployment below turns away would be an error of this one.
        handle(BackPressureError, _turned_away)
    return app


async def _turned_away(_: Any, error: Any) -> Any:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(error.message, error.status_code, {"retry-after": str(retry_after(error))})


def _give_self(cls: type, app: Any) -> None:
    """Let FastAPI routes that are methods of the class be called with the replica's instance as `self`.

    FastAPI takes `self` for a parameter of the request when it meets such a function. The routes are made anew, with a
    signature that says where `self` comes from. Routes of another class that has been given the same application before
    are removed: each class answers with its own methods.
    """
    router = getattr(app, "router", app)
    if type(router).__module__.startswith("fastapi"):
        # By name: of methods that share one, the class itself knows the last only, and each may have a route.
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
        return False  # an object that is called, and that nothing refers to weakly


def _body_of(endpoint: Any) -> tuple[str, str]:
    """Return the module and the class in whose body a function was written, by their names."""
    name: str = getattr(endpoint, "__qualname__", "")
    return getattr(endpoint, "__module__", ""), name.rpartition(".")[0]


def _nothing() -> None:
    """Stand for the endpoint of a route that has none."""


def _with_instance(route: Any) -> Any:
    """Return a route like this one, whose first parameter is the replica's instance."""
    from fastapi import Depends

    signature = inspect.signature(route.endpoint)
    first, *others = signature.parameters.values()
    if first.default is inspect.Parameter.empty:
        itself = first.replace(default=Depends(_instance), kind=inspect.Parameter.KEYWORD_ONLY)
        named = [other.replace(kind=inspect.Parameter.KEYWORD_ONLY) for other in others]
        route.endpoint.__signature__ = signature.replace(parameters=[itself, *named])
    # Routes keep what they were made of under the names of the parameters.
    wanted = inspect.signature(type(route).__init__).parameters
    given = {name: getattr(route, name) for name in wanted if name != "self" and hasattr(route, name)}
    return type(route)(**given)


def _instance() -> Any:
    """Return the instance of the replica that answers."""
    from skate.serve.context import get_replica_context

    return get_replica_context().servable_object
