"""Applications by their import path, as configuration files and command lines name them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from skate.serve.deployment import Application, Deployment

__all__ = ["build_with_arguments", "import_application", "import_target"]


def import_target(import_path: str) -> Any:
    """Return what an import path names: `package.module:name`, or with a dot in place of the colon.

    >>> import_target("json:dumps") is import_target("json.dumps")
    True

    Raises:
        ValueError: If that is no import path.
        ImportError: If there is no such module.
        AttributeError: If the module has no such name.
    """
    module, _, name = import_path.rpartition(":" if ":" in import_path else ".")
    if not module or not name or ":" in module:
        raise ValueError(
            f"{import_path!r} is no import path: write the module, a colon, and the name of the application in it, "
            "like 'package.module:app'."
        )
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise AttributeError(
                f"Module {module!r} has no {name!r}: is it defined at the top level of {found.__file__}?"
                if inspect.ismodule(found)
                else f"{import_path!r} does not exist: {found!r} has no {part!r}."
            ) from None
    return found


def import_application(import_path: str, args: Mapping[str, Any]) -> Application:
    """Return the application at an import path, built with arguments if a function is there that builds it."""
    return build_with_arguments(import_target(import_path), args, import_path)


def build_with_arguments(target: Any, args: Mapping[str, Any], where: str) -> Application:
    """Return an application: the target itself, or what it builds from the arguments.

    Args:
        target: An application, or a function of one parameter that returns one. A parameter that is annotated with a
            model of pydantic gets one made of the arguments; any other gets them as a dict.
        args: What the file or the command line says.
        where: How the target was named, for errors.

    Raises:
        TypeError: If the target is neither, or the function returns something else.
        ValueError: If there are arguments, and nothing takes them.
    """
    if isinstance(target, Application):
        if args:
            raise ValueError(
                f"Arguments can only be passed to an application builder function, and {where!r} is an already built "
                f"application: leave out {', '.join(map(repr, args))}, or name a function that returns the application."
            )
        return target
    if isinstance(target, Deployment):
        raise TypeError(
            f"Expected {where!r} to be an Application or a function that returns one, but it is a Deployment: "
            f"bind it, like `app = {target.name}.bind()`, and name that."
        )
    if not inspect.isroutine(target):
        raise TypeError(
            f"Expected {where!r} to be an Application or a function that returns one, but got {type(target)}."
        )
    made = target(_argument(target, args, where))
    if not isinstance(made, Application):
        raise TypeError(
            f"Application builder functions must return an `Application` returned by `Deployment.bind()`, but "
            f"{where!r} returned {type(made)}."
        )
    return made


def _argument(builder: Callable[..., Any], args: Mapping[str, Any], where: str) -> Any:
    try:
        signature = inspect.signature(builder, eval_str=True)
    except NameError:  # an annotation for type checkers alone
        signature = inspect.signature(builder)
    parameters = list(signature.parameters.values())
    if len(parameters) != 1:
        raise TypeError(
            "Application builder functions should take exactly one parameter, a dictionary containing the passed "
            f"arguments; {where!r} takes {len(parameters)}."
        )
    wanted = parameters[0].annotation
    if inspect.isclass(wanted) and hasattr(wanted, "model_validate"):
        return wanted.model_validate(dict(args))
    return dict(args)
