"""Validation of options. Errors have the types and texts of Ray Serve's errors."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn

from skate.air import _arguments as arguments
from skate.air._arguments import hint_for_unknown


def validate_integer(name: str, value: Any, *, low: int, high: int | None = None, must: str = "") -> int:
    """Return `value` as an integer within bounds, or raise pydantic's ValidationError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return arguments.whole(name, value, low=low, high=high, must=must)
    except (TypeError, ValueError) as error:
        _raise_error(name, value, str(error))


def validate_seconds(name: str, value: Any, *, above_zero: bool = False) -> float:
    """Return `value` as a finite number of seconds, or raise pydantic's ValidationError."""
    number = validate_number(
        name, value, f"a {'positive' if above_zero else 'non-negative'} number of seconds"
    )
    if number < 0 or (above_zero and number == 0):
        least = "a positive" if above_zero else "a non-negative"
        reject(name, f"{least} number of seconds", value)
    return number


def validate_number(name: str, value: Any, must: str = "a finite number") -> float:
    """Return `value` as a finite number, or raise pydantic's ValidationError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        reject(name, must, value)
    return float(value)


def validate_model(name: str, kind: Any, value: Any) -> Any:
    """Return an option that is a model, created from a dictionary if necessary; None stays None.

    Args:
        name: The name of the option.
        kind: The class of the model.
        value: The user's value.
    """
    if value is None or isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        article = "an" if kind.__name__[0] in "AEIOUH" else "a"
        reject(name, f"{article} {kind.__name__}, a dictionary of its fields or None", value)
    return kind._validated(value, f"{name} ({kind.__name__})")


def reject(name: str, must: str, value: Any) -> NoReturn:
    """Raise pydantic's ValidationError for an invalid option."""
    _raise_error(name, value, f"`{name}` must be {must}, got {arguments.shown(value)}.")


def _raise_error(name: str, value: Any, message: str) -> NoReturn:
    # Imported here, because most programs never need it, and importing pydantic takes longer than importing Serve.
    from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

    problem = PydanticCustomError("deployment_option", message)
    raise ValidationError.from_exception_data(
        "options", [InitErrorDetails(type=problem, loc=(name,), input=value)], hide_input=True
    )


def check_json(name: str, value: Any) -> None:
    """Raise ValueError unless `value` can be serialized as JSON; bytes are accepted unchanged."""
    if isinstance(value, bytes):
        return
    arguments.as_json(name, value)


def check_gang_multiple(name: str, replicas: int | None, gang_size: int) -> None:
    """Raise ValueError if a number of replicas does not consist of whole gangs."""
    if replicas is not None and replicas % gang_size:
        raise ValueError(
            f"{name} ({replicas}) must be a multiple of gang_size ({gang_size}): replicas start and stop in "
            f"whole gangs. Use {replicas - replicas % gang_size + gang_size}, or another "
            "gang_scheduling_config.gang_size."
        )


def check_route_prefix(value: Any) -> None:
    """Raise unless `value` is a valid route prefix; None disables HTTP for the application."""
    arguments.instance("route_prefix", value, str, "a string that starts with '/'", optional=True)
    if value is None:
        return
    if not value.startswith("/"):
        raise ValueError(f'route_prefix "{value}" does not start with "/": write "/{value}".')
    if value != "/" and value.endswith("/"):
        raise ValueError(f'route_prefix "{value}" ends with "/": write "{value[:-1]}".')
    if "{" in value or "}" in value:
        raise ValueError(
            f'route_prefix "{value}" has wildcards, which it may not have: routes with parameters belong to '
            "the application that @serve.ingress takes."
        )


_REMOVED = {
    "host": "Use `serve.start(http_options={'host': ...})`.",
    "init_args": "Give arguments with `.bind(...)`.",
    "init_kwargs": "Give arguments with `.bind(...)`.",
    "is_driver_deployment": "There is one proxy for all applications: use `serve.run(..., route_prefix=...)`.",
    "max_concurrent_queries": "Use `max_ongoing_requests`.",
    "max_queued_queries": "Use `max_queued_requests`.",
    "port": "Use `serve.start(http_options={'port': ...})`.",
    "prev_version": "Serve manages versions itself.",
    "ray_actor_option": "Use `ray_actor_options`.",
    "route_prefix": "A route belongs to an application: use `serve.run(..., route_prefix=...)`, or `route_prefix` of "
    "the application in a configuration file.",
    "runtime_env": "Use `ray_actor_options={'runtime_env': ...}`.",
    **{
        option: f"Use `ray_actor_options={{'{option}': ...}}`."
        for option in ("accelerator_type", "memory", "num_cpus", "num_gpus", "resources")
    },
}


def reject_version(where: str) -> None:
    """Raise for the removed option `version`."""
    raise ValueError(
        f"`version` in `{where}` has been removed. Serve manages the versions of deployments itself."
    )


def reject_unknown_options(given: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise TypeError for the name of an option that does not exist.

    Args:
        given: The given names.
        known: The existing names.
        where: The function that the user called, for errors: `@serve.deployment`.
    """
    for name in given:
        if name not in known:
            hint = _REMOVED.get(name) or hint_for_unknown(name, known)
            raise TypeError(f"{where} got an unexpected keyword argument {name!r}. {hint}")
