"""Access to the engine for state queries: the running session, or a temporary connection to the long-lived node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import skate._engine as engines
from skate._base import variables
from skate.util.state.exception import InvalidQueryError


@contextmanager
def attach(address: str | None = None) -> Iterator[Any]:
    """Yield the engine to query.

    Args:
        address: Address of the node; None means the session of this process, else the node of `skate start`.

    Raises:
        ConnectionError: This process has no session, and no node is running.
        InvalidQueryError: The session of this process has another address.
    """
    running = engines.running()
    if running is not None:
        session = running.context()["session"]
        if address not in (None, "auto", "local", session):
            raise InvalidQueryError(
                f"This process is attached to {session}, not to {address}. Omit the address, or call "
                "shutdown() first."
            )
        yield running
        return
    from skate._engine.local.driver import driver, long_lived

    named = address or variables.text("ADDRESS") or "auto"
    engine = driver.connect(
        long_lived.find(named, observer=True),
        namespace=None,
        runtime_env={},
        log_to_driver=False,
        metadata={},
        observer=True,
    )
    try:
        yield engine
    finally:
        engine.shutdown()
