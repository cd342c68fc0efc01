"""Errors of the state API."""

from __future__ import annotations

from skate.exceptions import RayError

__all__ = ["DataSourceUnavailable", "InvalidQueryError", "RayStateApiException", "ServerUnavailable"]


class RayStateApiException(RayError):
    """A query of the state of a node failed."""

    def __init__(self, err_msg: str, *args: object) -> None:
        super().__init__(err_msg, *args)


class InvalidQueryError(RayStateApiException, ValueError):
    """The query is invalid: it has an unknown column, operator or type of value."""


class DataSourceUnavailable(RayStateApiException):
    """The node does not respond."""


class ServerUnavailable(RayStateApiException):
    """No node is running."""

    def __init__(self, err_msg: str = "No node is running: start one with `skate start`.") -> None:
        super().__init__(err_msg)
