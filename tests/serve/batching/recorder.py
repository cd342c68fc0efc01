"""A deployment whose batches can be watched."""

from __future__ import annotations

import asyncio
from typing import Any

from skate.serve.batching import batch

LONG = 1000.0  # a batch that waits for so long starts because it is full, or never


async def settled() -> None:
    """Let everything run that is ready to run."""
    for _ in range(10):
        await asyncio.sleep(0)


class Recorder:
    """Doubles what it gets, in batches that it writes down and lets wait for `gate`."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0

    @batch(max_batch_size=3, batch_wait_timeout_s=LONG)
    async def double(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [2 * item for item in items]
