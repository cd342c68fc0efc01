"""What the user's object measures for request routers: asked for now and then, and told to callers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from skate._api.payloads import pack
from skate.serve._config import defaults
from skate.serve._config.options import DeploymentOptions
from skate.serve._replica.user_code import UserCode

__all__ = ["RoutingStats"]

logger = logging.getLogger("skate.serve")


class RoutingStats:
    """Calls `record_routing_stats`, where the user's class has it, as often as the configuration says.

    Args:
        code: The user's object.
        tell: Called with what it said, packed, whenever that has changed.
    """

    def __init__(self, code: UserCode, tell: Callable[[bytes], None]) -> None:
        self.packed: bytes | None = None
        self._code = code
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._is_unwell = False

    def start(self, options: DeploymentOptions) -> None:
        """Ask from now on, or otherwise than before."""
        self.stop()
        if not self._code.has_routing_stats:
            return
        config = options.request_router_config
        period, timeout = defaults.ROUTING_STATS_PERIOD_S, defaults.ROUTING_STATS_TIMEOUT_S
        if config is not None:
            period, timeout = config.request_routing_stats_period_s, config.request_routing_stats_timeout_s
        self._task = asyncio.ensure_future(self._ask(period, timeout))

    def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _ask(self, period: float, timeout: float) -> None:
        while True:
            try:
                async with asyncio.timeout(timeout):
                    packed = pack(await self._code.routing_stats())
                if packed is None:
                    raise ValueError("they are too large, or hold references to objects")
            except Exception as error:
                # Callers go on with what they know. It is told once, not with every period.
                if not self._is_unwell:
                    logger.warning("record_routing_stats failed: %r", error)
                self._is_unwell = True
            else:
                self._is_unwell = False
                if packed != self.packed:
                    self.packed = packed
                    self._tell(packed)
            await asyncio.sleep(period)
