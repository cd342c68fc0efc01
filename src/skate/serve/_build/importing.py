"""Import of applications by import path, for configuration files and the command line."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from skate.serve.deployment import Application, Deployment

__all__ = ["build_with_arguments", "import_application", "import_target"]


def import_target(import_path: str) -> Any:
    """Return the object at an import path: `package.module:name`, or with a dot instead of the colon.

    >>> import_target("json:dumps") is import_target("json.dumps")
    True

    Raises:
        ValueError: If the import path is malformed.
        ImportError: If the module does not exist.
        AttributeError: If the module has no such name.
    """
    module, _, name = import_path.rpartition(":" if ":" in import_path else ".")
    if not module or not name or ":" in module:
        raise ValueError(
            f"{import_path!r} is not an import path: write the module, a colon, and the name of the application in it, "
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
    """Return the application at an import path; a builder function there is called with the arguments."""
    return build_with_arguments(import_target(import_path), args, import_path)


def build_with_arguments(target: Any, args: Mapping[str, Any], where: str) -> Application:
    """Return an application: the target itself, or the result of a builder function.

    Args:
        target: An application, or a function of one parameter that returns one. A parameter that is annotated with a
            pydantic model gets an instance of the model; any other gets the arguments as a dict.
        args: The arguments from the configuration file or command line.
        where: The name of the target, for errors.

    Raises:
        TypeError: If the target is neither, or the function returns something else.
        ValueError: If there are arguments for an application that is already built.
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
            f"bind it with `app = {target.name}.bind()`, and use the import path of `app`."
        )
    if not inspect.isroutine(target):
        raise TypeError(
            f"Expected {where!r} to be an Application or a function that returns one, but got {type(target)}."
        )
    made = target(_argument(target, args, where))
    if not isinstance(made, Application):
        raise TypeError(
            f"Application builder functions must return an Application, made by .bind(), but {where!r} returned "
            f"{type(made)}."
        )
    return made


def _argument(builder: Callable[..., Any], args: Mapping[str, Any], where: str) -> Any:
    try:
        signature = inspect.signature(builder, eval_str=True)
    except NameError:  # an annotation that exists for type checkers only
        signature = inspect.signature(builder)
    parameters = list(signature.parameters.values())
    if len(parameters) != 1:
        raise TypeError(
            "Application builder functions should take exactly one parameter, for all arguments together, but "
            f"{where!r} takes {len(parameters)}."
        )
    wanted = parameters[0].annotation
    if inspect.isclass(wanted) and hasattr(wanted, "model_validate"):
        return wanted.model_validate(dict(args))
    return dict(args)
