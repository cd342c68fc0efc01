"""Connections to Snowflake, for the source and the sink of SQL databases."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from skate.air import _optional


def connection_factory(parameters: dict[str, Any], caller: str) -> Callable[[], Any]:
    """Return a function that opens a connection, in each task.

    Args:
        parameters: Arguments of `snowflake.connector.connect`.
        caller: The call that needs it.
    """
    _connector(caller)
    return functools.partial(_connect, dict(parameters), caller)


def _connect(parameters: dict[str, Any], caller: str) -> Any:
    return _connector(caller).connect(**parameters)


def _connector(caller: str) -> Any:
    return _optional.load("snowflake.connector", caller, "snowflake-connector-python")
