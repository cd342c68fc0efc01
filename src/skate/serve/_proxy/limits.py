"""The limits of requests from clients."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skate.serve._proxy.hosts import AllowedHosts
from skate.serve._wire.frames import Headers

__all__ = ["BodyTooLargeError", "Limits"]

# File descriptors reserved for everything except clients: links to replicas, files, the event loop.
_OWN_DESCRIPTORS = 128
_SHORT_BODY = 64 * 1024


class BodyTooLargeError(Exception):
    """The body exceeded the limit after the proxy had forwarded the head."""


@dataclass(frozen=True)
class Limits:
    """The limits of requests from clients.

    >>> Limits.of({"max_body_bytes": 1000}, {"SKATE_SERVE_HEADER_TIMEOUT_S": "2.5"}).header_timeout_s
    2.5
    """

    timeout_s: float | None = None  # for a whole request
    body_bytes: int = 1 << 30
    header_bytes: int = 64 * 1024
    header_timeout_s: float = 30.0  # from the first byte of a request to the end of its headers
    body_timeout_s: float = 60.0  # between two parts of a body
    connections: int = 10_000
    hosts: AllowedHosts = field(default_factory=AllowedHosts)

    @classmethod
    def of(cls, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Limits:
        """Return the limits of the HTTP options and the environment. Options take precedence."""
        found: dict[str, Any] = {}
        for name, option in _OPTIONS.items():
            default = getattr(cls, name)
            value = options.get(option)
            if value is None and (word := environ.get(f"SKATE_SERVE_{option.upper()}")):
                value = _parse_number(option, word, type(default))
            if value is not None:
                found[name] = value
        if "connections" not in found:
            # The process cannot accept more connections than descriptors, and needs some of them for links.
            allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            if allowed != resource.RLIM_INFINITY:
                found["connections"] = max(1, min(cls.connections, allowed - _OWN_DESCRIPTORS))
        hosts = AllowedHosts.of(options, environ)
        return cls(timeout_s=options.get("request_timeout_s"), hosts=hosts, **found)

    def is_too_long(self, headers: Headers) -> bool:
        """Return whether the declared body length exceeds the limit."""
        length = _content_length(headers)
        return length is not None and length > self.body_bytes

    def is_short(self, headers: Headers) -> bool:
        """Return whether the declared body is short enough to read it before forwarding."""
        length = _content_length(headers)
        return length is not None and length <= _SHORT_BODY


def _content_length(headers: Headers) -> int | None:
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


_OPTIONS = {
    "body_bytes": "max_body_bytes",
    "header_bytes": "max_header_bytes",
    "header_timeout_s": "header_timeout_s",
    "body_timeout_s": "body_timeout_s",
    "connections": "max_connections",
}


def _parse_number(option: str, word: str, kind: type) -> int | float:
    try:
        value: int | float = kind(word)
    except ValueError:
        value = 0
    if not value > 0:
        what = "a whole number" if kind is int else "a number of seconds"
        raise ValueError(f"SKATE_SERVE_{option.upper()} is {word!r}: it must be {what} above 0.")
    return value
