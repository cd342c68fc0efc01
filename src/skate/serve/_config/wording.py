"""Sentences that several checks of options share."""

from __future__ import annotations

from typing import Any

from skate.air import _arguments as arguments
from skate.air._arguments import closest

__all__ = ["check_gang_multiple", "check_json", "check_route_prefix", "closest"]


def check_json(name: str, value: Any) -> None:
    """Raise ValueError unless `value` can be written as JSON; bytes pass as they are."""
    if isinstance(value, bytes):
        return
    arguments.as_json(name, value)


def check_gang_multiple(name: str, replicas: int | None, gang_size: int) -> None:
    """Raise ValueError where replicas would not fill whole gangs."""
    if replicas is not None and replicas % gang_size:
        raise ValueError(
            f"{name} ({replicas}) must be a multiple of gang_size ({gang_size}): replicas start and stop in "
            f"whole gangs. Use {replicas - replicas % gang_size + gang_size}, or another "
            "gang_scheduling_config.gang_size."
        )


def check_route_prefix(value: Any) -> None:
    """Raise unless requests for an application may start with `value`; None stands for no HTTP."""
    arguments.instance("route_prefix", value, str, "a string that starts with '/'", optional=True)
    if value is None:
        return
    if not value.startswith("/"):
        raise ValueError(
            f'Got "{value}" for route_prefix. Route prefix must start with "/": write "/{value}".'
        )
    if value != "/" and value.endswith("/"):
        raise ValueError(
            f'Got "{value}" for route_prefix. Route prefix cannot end with "/": write "{value[:-1]}".'
        )
    if "{" in value or "}" in value:
        raise ValueError(
            f'Got "{value}" for route_prefix. Route prefix may not contain wildcards: routes with parameters belong to '
            "the application that @serve.ingress takes."
        )
