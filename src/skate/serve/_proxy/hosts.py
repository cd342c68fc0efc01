"""The host names by which clients may address the HTTP server: a protection against DNS rebinding.

A web page can make its own domain name resolve to 127.0.0.1. The browser then lets the page read the answers of a
server on the user's machine. Such a request has the page's name in its `Host` header. A server on the loopback
interface therefore accepts only names that strangers do not control.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

__all__ = ["AllowedHosts"]

_VARIABLE = "SKATE_SERVE_ALLOWED_HOSTS"
# RFC 9112, 3.2: a name, an IPv4 address or a bracketed IPv6 address, with an optional port.
_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~!$&'()*+,;=%]*)(?::[0-9]*)?")
_MAX_KNOWN = 1000  # limit of the cache of accepted values, which clients choose


class AllowedHosts:
    """Check `Host` headers.

    Args:
        patterns: Names, `*.example.com` for all subdomains, or `*` for every name. None allows every name.
        any_address: Whether to allow IP addresses, too.

    >>> AllowedHosts(["*.example.com"]).refusal([b"api.example.com:8000"]) is None
    True
    >>> AllowedHosts(["localhost"]).refusal([b"evil.example"])[0]
    421
    """

    def __init__(self, patterns: Iterable[str] | None = None, *, any_address: bool = False) -> None:
        names = None if patterns is None else [name.lower().rstrip(".") for name in patterns]
        self._is_open = names is None or "*" in names
        self._names = frozenset(names or ())
        self._suffixes = tuple(name[1:] for name in names or () if name.startswith("*."))
        self._any_address = any_address
        self._known: set[bytes] = set()

    @classmethod
    def of(cls, options: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> AllowedHosts:
        """Return the check for the HTTP options and the environment. Options take precedence."""
        patterns = options.get("allowed_hosts")
        if patterns is None and (words := environ.get(_VARIABLE)):
            patterns = [word.strip() for word in words.split(",") if word.strip()]
        if patterns is not None:
            return cls(patterns)
        if not _is_loopback(options.get("host") or ""):
            return cls()  # the names of this machine in a network are unknown
        return cls(["localhost", "*.localhost", socket.gethostname()], any_address=True)

    def refusal(
        self, values: list[bytes], target: bytes = b"/", *, may_lack: bool = False
    ) -> tuple[int, str] | None:
        """Return the status and text of a refusal, or None if the request is allowed.

        Args:
            values: The values of the `Host` headers.
            target: The request target. The authority of an absolute target overrides the header: RFC 9112, 3.2.2.
            may_lack: Whether the header may be missing, as in HTTP/1.0.
        """
        if len(values) != 1:
            if not values and may_lack:
                return None if self._is_open else self._not_allowed("no name")
            return 400, f"A request must have one Host header; this one has {len(values)}."
        value = values[0]
        if not target.startswith(b"/") and b"://" in target:
            value = _authority(target)
        if value in self._known:
            return None
        parsed = _HOST.fullmatch(value)
        if parsed is None:
            return 400, "The Host header is not a name or an address."
        name = parsed[1].decode("ascii").lower().rstrip(".")
        if not self._allows(name):
            return self._not_allowed(f"the name {name!r}")
        if len(self._known) < _MAX_KNOWN:
            self._known.add(value)
        return None

    def _allows(self, name: str) -> bool:
        if self._is_open or name in self._names or name.endswith(self._suffixes):
            return True
        return self._any_address and _is_address(name)

    def _not_allowed(self, what: str) -> tuple[int, str]:
        return 421, (
            f"This server does not answer to {what}. Add the name to the option allowed_hosts of Serve's HTTP options, "
            f'or to {_VARIABLE}; "*" allows every name.'
        )


def _authority(target: bytes) -> bytes:
    try:
        return urlsplit(target).netloc.rpartition(b"@")[2]
    except ValueError:
        return b"?"  # not a valid authority


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host.strip("[]")).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
