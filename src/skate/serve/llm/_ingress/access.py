"""API keys."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import Final

from skate.serve.llm._protocol.base import RequestError

__all__ = ["ApiKeys"]

# Health checks of load balancers send no key.
_PUBLIC: Final = frozenset({"/health"})


class ApiKeys:
    """The keys that clients may use.

    Args:
        keys: The keys. Without any, every client may use the application.

    Raises:
        ValueError: If a key is empty.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        if isinstance(keys, str):
            raise ValueError("`api_keys` must be a list of keys, not one string.")
        self._keys = [key.encode() for key in keys]
        if not all(self._keys):
            raise ValueError("An API key is empty, so clients without a key could use it: remove it.")

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Check the key of a request: `Authorization: Bearer KEY` or, as Anthropic's clients send it, `x-api-key: KEY`.

        Args:
            path: The path of the request.
            headers: Its headers.

        Raises:
            RequestError: If the key is missing or wrong.
        """
        if not self._keys or path in _PUBLIC:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = (key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")).encode()
        # All keys are compared, each in constant time, so that the time does not tell anything about them.
        if not sum(hmac.compare_digest(given, known) for known in self._keys):
            raise RequestError(
                "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
                401,
                code="invalid_api_key",
            )
