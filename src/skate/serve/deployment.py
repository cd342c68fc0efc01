"""What users deploy: deployments, and applications made of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from skate.air import _arguments as arguments
from skate.serve._build.builder import reduce_application
from skate.serve._config.options import OPTION_NAMES, DeploymentOptions

__all__ = ["Application", "Deployment"]

T = TypeVar("T")


class Deployment(Generic[T]):
    """A class or function that can be served, with its options. `@serve.deployment` makes them.

    `bind` gives it the arguments of its constructor; what comes out is an application that `serve.run` can run, or that
    can be an argument of another deployment's `bind`.
    """

    def __init__(self, func_or_class: Callable[..., Any], options: DeploymentOptions) -> None:
        self._func_or_class = func_or_class
        self._options = options

    @property
    def func_or_class(self) -> Callable[..., Any]:
        """What was decorated."""
        return self._func_or_class

    def bind(self, *args: Any, **kwargs: Any) -> Application:
        """Return an application of this deployment, with arguments for its constructor.

        An argument that is an application itself becomes a `DeploymentHandle` inside of the deployment.

        Raises:
            TypeError: The constructor does not take these arguments.
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
        """Set how the replicas log."""
        self._options = self._options.merged({"logging_config": logging_config}, "set_logging_config()")

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Raise: what was decorated is served, not called."""
        raise RuntimeError(
            "Deployments cannot be constructed directly. Use `deployment.bind(...)` and serve.run instead; "
            f"`{self.name}.func_or_class` is the class or function itself."
        )

    def __getattr__(self, name: str) -> Any:
        # For type checkers, too: the options are properties, which are made of their names below.
        raise AttributeError(
            f"A Deployment has no attribute '{name}': its methods are `bind` and `options`. Call the methods of what "
            "was deployed with the handle that serve.run returns."
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


def _check_arguments(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return  # of a class that is not written in Python
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
    """A deployment with its constructor's arguments, and so, by them, all that it is composed of."""

    def __init__(self, deployment: Deployment[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._bound_deployment = deployment
        self._args = args
        self._kwargs = kwargs

    def __reduce__(self) -> Any:
        return reduce_application(self) or (Application, (self._bound_deployment, self._args, self._kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"'Application' object has no attribute '{name}': it has no methods. serve.run returns a handle that has; "
            "inside of a deployment it is the handle that `bind` was given."
        )
