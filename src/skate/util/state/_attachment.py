"""Access to the engine for state queries: the running session, or a temporary connection to the long-lived node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import skate._engine as engines
from skate._base import variables
from skate.util.state.exception import InvalidQueryError

if TYPE_CHECKING:
    from skate._engine.abc import Engine
    from skate.util.state._http import HttpState


@contextmanager
def attach(address: str | None = None) -> Iterator[Engine]:
    """Yield the engine to ask.

    Args:
        address: Address of the node; None means the session of this process, else the node of `skate start`.

    Raises:
        ConnectionError: This process has no session, and no node is running.
        InvalidQueryError: The session of this process has another address, or the address is that of a dashboard.
    """
    running = engines.running()
    if running is not None:
        session = running.context().session
        if address not in (None, "auto", "local", session) and _node_at(address) != "auto":
            raise InvalidQueryError(
                f"This process is attached to {session}, not to {address}. Omit the address, or call "
                "shutdown() first."
            )
        yield running
        return
    from skate._api.starting import observing

    engine = observing(_node_at(_given(address)))
    try:
        yield engine
    finally:
        engine.shutdown()


def dashboard_at(
    address: str | None,
    cookies: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
) -> HttpState | None:
    """Return the state behind an address if it is the URL of a dashboard, else None.

    Args:
        address: The address; None means the session of this process, or else that of the environment.
        cookies: Cookies of each request.
        headers: Headers of each request.
    """
    given = "" if address is None and engines.running() is not None else _given(address)
    if not _is_url(given):
        return None
    from skate._api.nodes import is_dashboard

    has_credentials = bool(cookies) or "authorization" in map(str.lower, headers or ())
    if not is_dashboard(given, has_credentials=has_credentials):
        return None
    from skate.util.state._http import HttpState

    return HttpState(given, cookies, headers)


def _node_at(address: str) -> str:
    """Return the address of a node; "auto" for the URL at which Ray's dashboard listens by default."""
    if not _is_url(address):
        return address
    from skate._api.nodes import is_dashboard

    if is_dashboard(address):
        raise InvalidQueryError(
            'This needs the node, and the address is that of a dashboard: pass "auto", or the folder of a session. '
            "Lists, summaries, logs and jobs are available over HTTP."
        )
    return "auto"


def _given(address: str | None) -> str:
    return address or variables.text("ADDRESS") or "auto"


def _is_url(address: str | None) -> bool:
    return address is not None and address.startswith(("http://", "https://"))
