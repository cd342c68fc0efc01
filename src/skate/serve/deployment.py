"""Deployments, and applications composed of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from skate._api.html_tables import facts_html, table_html
from skate.air import _arguments as arguments
from skate.serve._build.builder import reduce_application
from skate.serve._config.options import OPTION_NAMES, DeploymentOptions

__all__ = ["Application", "Deployment"]

T = TypeVar("T")


class Deployment(Generic[T]):
    """A class or function to serve, with its options. `@serve.deployment` creates it.

    `bind` sets the arguments of the constructor and returns an application, which `serve.run` runs, or which can be an
    argument of another deployment's `bind`.
    """

    def __init__(self, func_or_class: Callable[..., Any], options: DeploymentOptions) -> None:
        self._func_or_class = func_or_class
        self._options = options

    @property
    def func_or_class(self) -> Callable[..., Any]:
        """The decorated class or function."""
        return self._func_or_class

    def bind(self, *args: Any, **kwargs: Any) -> Application:
        """Return an application of this deployment, with arguments for its constructor.

        An argument that is an application becomes a `DeploymentHandle` inside the deployment.

        Raises:
            TypeError: If the constructor does not accept these arguments.
        """
        if inspect.isclass(self._func_or_class):
            _check_arguments(self._func_or_class, args, kwargs)
        return Application(self, args, kwargs)

    def options(
        self, func_or_class: Callable[..., Any] | None = None, *, _internal: bool = False, **options: Any
    ) -> Deployment[T]:
        """Return a copy with other options: those of `@serve.deployment`."""
        base = self._options
        if _internal and "version" in options:
            base = replace(base, version=options.pop("version"))
        arguments.function("func_or_class", func_or_class, "a class or a function", optional=True)
        merged = base.merged(options, "Deployment.options()")
        return Deployment(func_or_class or self._func_or_class, merged)

    def set_logging_config(self, logging_config: Any) -> None:
        """Set the logging options of the replicas."""
        self._options = self._options.merged({"logging_config": logging_config}, "set_logging_config()")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise an error: a deployment cannot be called directly."""
        raise RuntimeError(
            "Deployments cannot be constructed directly. Use `deployment.bind(...)` and serve.run instead; "
            f"`{self.name}.func_or_class` is the class or function itself."
        )

    def __getattr__(self, name: str) -> Any:
        # Also tells type checkers that there are further attributes: the options' properties are added below.
        raise AttributeError(
            f"A Deployment has no attribute '{name}': its methods are `bind` and `options`. Call the methods of the "
            "deployed class with the handle that serve.run returns."
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Deployment)
            and self._options == other._options
            and self._func_or_class == other._func_or_class
        )

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return f"Deployment(name={self.name})"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return facts_html("Deployment", {"name": self.name, "replicas": self.num_replicas})


def _check_arguments(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    has_constructor = any("__init__" in vars(base) or "__new__" in vars(base) for base in cls.__mro__[:-1])
    if not (has_constructor or args or kwargs):
        return  # without a look at the signature, which Python would parse from text
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return  # a class that is not implemented in Python
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__}.bind(): {error}. The constructor is "
            f"{cls.__name__}{signature.replace(return_annotation=inspect.Signature.empty)}."
        ) from None


def _option(name: str) -> property:
    return property(lambda self: getattr(self._options, name), doc=f"The option `{name}`.")


for _name in OPTION_NAMES:
    setattr(Deployment, _name, _option(_name))


class Application:
    """A deployment with its constructor's arguments, which may contain other applications."""

    def __init__(self, deployment: Deployment[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._bound_deployment = deployment
        self._args = args
        self._kwargs = kwargs

    def _repr_html_(self) -> str:
        rows = [
            (
                each._bound_deployment.name,
                getattr(each._bound_deployment.func_or_class, "__qualname__", ""),
                each._bound_deployment.num_replicas,
                "ingress" if each is self else "",
            )
            for each in _applications_in(self, {})
        ]
        return facts_html("Application", {}, table_html(("deployment", "code", "replicas", ""), rows))

    def __reduce__(self) -> Any:
        return reduce_application(self) or (Application, (self._bound_deployment, self._args, self._kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"'Application' object has no attribute '{name}': it has no methods. Use the handle that serve.run "
            "returns, or, inside a deployment, the handle that replaces the application in the arguments of `bind`."
        )


def _applications_in(value: Any, found: dict[int, Application]) -> list[Application]:
    """Return the applications in an argument of `bind`, each before those in its own arguments."""
    if isinstance(value, Application):
        if id(value) not in found:
            found[id(value)] = value
            _applications_in((value._args, value._kwargs), found)
    elif isinstance(value, dict):
        _applications_in(list(value.values()), found)
    elif isinstance(value, list | tuple | set):
        for each in value:
            _applications_in(each, found)
    return list(found.values())
