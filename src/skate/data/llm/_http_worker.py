"""The worker that sends rows to a server over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from skate.data.llm._config import HttpRequestProcessorConfig
from skate.data.llm._rows import RowWorker, missing_column, shown

__all__ = ["HttpWorker", "RateLimit"]


class RateLimit:
    """Spaces events evenly.

    Args:
        per_second: The maximum number of events per second.
        clock: A function that returns the time in seconds.

    >>> limit = RateLimit(2, clock=lambda: 10.0)
    >>> [limit.reserve() for _ in range(3)]
    [0.0, 0.5, 1.0]
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_second
        self._clock = clock
        self._next = 0.0

    def reserve(self) -> float:
        """Reserve the next event, and return how many seconds to wait for it."""
        now = self._clock()
        start = max(now, self._next)
        self._next = start + self._interval
        return start - now


class HttpWorker(RowWorker):
    """Sends the payload of each row to a URL.

    Args:
        config: The configuration of the processor.
        carries_rows: Whether each result is a row in one cell.
    """

    def __init__(self, *, config: HttpRequestProcessorConfig, carries_rows: bool) -> None:
        super().__init__(config, carries_rows=carries_rows)
        try:
            import aiohttp
        except ImportError as error:
            raise ImportError("HttpRequestProcessorConfig needs aiohttp: pip install aiohttp") from error
        self._config = config
        self._make_session = config.session_factory or aiohttp.ClientSession
        self._session: Any = None  # created in the event loop
        self._connection_errors = (
            aiohttp.ClientConnectionError,
            aiohttp.ClientPayloadError,
            asyncio.TimeoutError,
        )
        actors = config.concurrency if isinstance(config.concurrency, int) else config.concurrency[1]
        self._limit = None if config.qps is None else RateLimit(config.qps / actors)

    async def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the server's response to the payload of a row."""
        if "payload" not in row:
            raise missing_column("`payload`", row)
        body = json.dumps(row["payload"], default=_as_json)
        failure = ""
        for attempt in range(self._config.max_retries + 1):
            if attempt:
                await asyncio.sleep(self._config.base_retry_wait_time_in_s * 2 ** (attempt - 1))
            try:
                status, text = await self._post(body)
            except self._connection_errors as error:
                failure = f"no response ({type(error).__name__}: {error})"
                continue
            if status in (408, 429) or status >= 500:
                failure = f"the status {status}: {shown(text)}"
                continue
            return {"http_response": self._parse(status, text)}
        raise RuntimeError(
            f"{self._config.url} returned {failure} (max_retries={self._config.max_retries}); raise max_retries or "
            "base_retry_wait_time_in_s, or lower qps"
        )

    def columns_of_failed_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return an empty response."""
        return {"http_response": None}

    async def _post(self, body: str) -> tuple[int, str]:
        if self._limit is not None:
            await asyncio.sleep(self._limit.reserve())
        if self._session is None:
            self._session = self._make_session()
        headers = {"Content-Type": "application/json", **(self._config.headers or {})}
        async with self._session.post(self._config.url, data=body, headers=headers) as response:
            return response.status, await response.text()

    def _parse(self, status: int, text: str) -> Any:
        if status >= 400:
            raise RuntimeError(f"{self._config.url} returned the status {status}: {shown(text)}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise RuntimeError(
                f"{self._config.url} returned a response that is not JSON: {shown(text)}"
            ) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"`payload` must contain JSON values only, got a {type(value).__name__}: {shown(value)}")
