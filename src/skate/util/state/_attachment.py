"""Whom to ask: the running session, or the long-lived node for the time of one question."""

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
def attached(address: str | None = None) -> Iterator[Engine]:
    """Yield the engine to ask.

    Args:
        address: Of the node; None asks the session of this process, else the node of `skate start`.

    Raises:
        ConnectionError: This process has no session, and no node is running.
        InvalidQueryError: The session of this process is another one than `address`.
    """
    running = engines.running()
    if running is not None:
        session = running.context().session
        if address not in (None, "auto", "local", session):
            raise InvalidQueryError(
                f"This process is attached to {session}, not to {address}. Leave the address out, or call "
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
