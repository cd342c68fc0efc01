"""Rows that are sent to a server over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from skate.data.llm._config import HttpRequestProcessorConfig
from skate.data.llm._rows import RowWorker, shown

__all__ = ["HttpWorker", "RateLimit"]


class RateLimit:
    """Spaces events evenly.

    Args:
        per_second: The most events per second.
        clock: Returns the time in seconds.

    >>> limit = RateLimit(2, clock=lambda: 10.0)
    >>> [limit.reserve() for _ in range(3)]
    [0.0, 0.5, 1.0]
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_second
        self._clock = clock
        self._next = 0.0

    def reserve(self) -> float:
        """Reserve the next event, and return how many seconds it must wait."""
        now = self._clock()
        start = max(now, self._next)
        self._next = start + self._interval
        return start - now


class HttpWorker(RowWorker):
    """Sends the payloads of rows.

    Args:
        config: The configuration of the processor.
        carries_rows: Whether results are rows in one cell.
    """

    def __init__(self, *, config: HttpRequestProcessorConfig, carries_rows: bool) -> None:
        super().__init__(
            batch_size=config.batch_size,
            continue_on_error=config.should_continue_on_error,
            carries_rows=carries_rows,
        )
        try:
            import aiohttp
        except ImportError as error:
            raise ImportError("HttpRequestProcessorConfig needs aiohttp: pip install aiohttp") from error
        self._config = config
        self._make_session = config.session_factory or aiohttp.ClientSession
        self._session: Any = None  # made in the event loop
        self._connection_errors = (
            aiohttp.ClientConnectionError,
            aiohttp.ClientPayloadError,
            asyncio.TimeoutError,
        )
        actors = config.concurrency if isinstance(config.concurrency, int) else config.concurrency[1]
        self._limit = None if config.qps is None else RateLimit(config.qps / actors)

    async def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the server's answer to the payload of a row."""
        if "payload" not in row:
            raise ValueError(f"the row has no `payload`, only {', '.join(map(repr, row))}")
        body = json.dumps(row["payload"], default=_as_json)
        failure = ""
        for attempt in range(self._config.max_retries + 1):
            if attempt:
                await asyncio.sleep(self._config.base_retry_wait_time_in_s * 2 ** (attempt - 1))
            try:
                status, text = await self._post(body)
            except self._connection_errors as error:
                failure = f"no answer ({type(error).__name__}: {error})"
                continue
            if status in (408, 429) or status >= 500:
                failure = f"the status {status}: {shown(text)}"
                continue
            return {"http_response": self._parsed(status, text)}
        raise RuntimeError(
            f"{self._config.url} gave {failure} (max_retries={self._config.max_retries}); raise max_retries or "
            "base_retry_wait_time_in_s, or lower qps"
        )

    def columns_of_failed_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return an empty answer."""
        return {"http_response": None}

    async def _post(self, body: str) -> tuple[int, str]:
        if self._limit is not None:
            await asyncio.sleep(self._limit.reserve())
        if self._session is None:
            self._session = self._make_session()
        headers = {"Content-Type": "application/json", **(self._config.headers or {})}
        async with self._session.post(self._config.url, data=body, headers=headers) as response:
            return response.status, await response.text()

    def _parsed(self, status: int, text: str) -> Any:
        if status >= 400:
            raise RuntimeError(f"{self._config.url} gave the status {status}: {shown(text)}")
        try:
            return json.loads(text)
        except ValueError as error:
            raise RuntimeError(
                f"{self._config.url} gave an answer that is not JSON: {shown(text)}"
            ) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"`payload` must have JSON values, got a {type(value).__name__}: {shown(value)}")
