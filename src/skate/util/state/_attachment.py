"""Access to the engine for state queries: the running session, or a temporary connection to the long-lived node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import skate._engine as engines
from skate._base import variables
from skate.util.state.exception import InvalidQueryError

if TYPE_CHECKING:
    from skate._engine.abc import Engine


@contextmanager
def attach(address: str | None = None) -> Iterator[Engine]:
    """Yield the engine to ask.

    Args:
        address: Address of the node; None means the session of this process, else the node of `skate start`.

    Raises:
        ConnectionError: This process has no session, and no node is running.
        InvalidQueryError: The session of this process has another address.
    """
    running = engines.running()
    if running is not None:
        session = running.context().session
        if address not in (None, "auto", "local", session):
            raise InvalidQueryError(
                f"This process is attached to {session}, not to {address}. Omit the address, or call "
                "shutdown() first."
            )
        yield running
        return
    from skate._api.starting import observing

    engine = observing(address or variables.text("ADDRESS") or "auto")
    try:
        yield engine
    finally:
        engine.shutdown()
