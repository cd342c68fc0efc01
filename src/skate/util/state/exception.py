"""Errors of the state API."""

from __future__ import annotations

from skate.exceptions import RayError

__all__ = ["DataSourceUnavailable", "InvalidQueryError", "RayStateApiException", "ServerUnavailable"]


class RayStateApiException(RayError):
    """A question about the node could not be answered."""

    def __init__(self, err_msg: str, *args: object) -> None:
        super().__init__(err_msg, *args)


class InvalidQueryError(RayStateApiException, ValueError):
    """The question itself is wrong: an unknown column, operator or kind of value."""


class DataSourceUnavailable(RayStateApiException):
    """The node does not answer."""


class ServerUnavailable(RayStateApiException):
    """There is no node to ask."""

    def __init__(self, err_msg: str = "There is no node to ask: start one with `skate start`.") -> None:
        super().__init__(err_msg)
