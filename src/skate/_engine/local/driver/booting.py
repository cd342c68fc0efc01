"""Starting a session: its node boots while this process loads what it needs to talk to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skate._engine.local.driver.launcher import start_node
from skate._engine.local.wire.interrupts import held_back

if TYPE_CHECKING:
    from skate._engine.local.driver.driver import LocalDriver


def start(
    config: dict[str, Any],
    *,
    namespace: str | None,
    runtime_env: dict[str, Any],
    log_to_driver: bool,
    metadata: dict[str, Any],
) -> LocalDriver:
    """Start a node of our own, as `node_config` describes it, and attach to it."""
    extra = {"log_to_driver": log_to_driver, "metadata": metadata}
    node = None
    try:
        with held_back():  # an interrupted import may leave msgspec in a state in which it crashes
            node = start_node(config)
            from skate._engine.local.driver import driver
        return driver.attach(node, namespace, runtime_env, extra)
    except BaseException:
        if node is not None:
            node.abandon()
        raise
