"""Rows on their way through a processor, and the base class of the workers that process them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from skate.data.block import BlockAccessor

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DATA_COLUMN", "ERROR_COLUMN", "CarriedRow", "Postprocess", "Preprocess", "RowWorker", "shown"]

DATA_COLUMN = "__data"
ERROR_COLUMN = "__inference_error__"
_SHOWN = 200  # characters of a value in an error


@dataclass(frozen=True, slots=True)
class CarriedRow:
    """A row in one cell, between two steps of a processor.

    A block would give all dicts of a column the same keys, and a request would get fields that its row does not have.
    """

    values: dict[str, Any]


class Preprocess:
    """Adds what a function returns for a row to the row.

    Args:
        function: The user's function.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        self._function = function

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row in one cell."""
        made = self._function(dict(row))
        return {DATA_COLUMN: CarriedRow({**row, **_checked("preprocess", made)})}


class Postprocess:
    """Returns what a function returns for a row. Rows that have failed are returned as they are.

    Args:
        function: The user's function.
        continue_on_error: Whether rows have a column for errors.
    """

    def __init__(
        self, function: Callable[[dict[str, Any]], Mapping[str, Any]], continue_on_error: bool
    ) -> None:
        self._function = function
        self._continue_on_error = continue_on_error

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row that the user sees."""
        values = row[DATA_COLUMN].values
        if values.get(ERROR_COLUMN):
            return dict(values)
        made = dict(_checked("postprocess", self._function(dict(values))))
        return {**made, ERROR_COLUMN: ""} if self._continue_on_error else made


def _checked(name: str, made: Any) -> Mapping[str, Any]:
    if not isinstance(made, Mapping):
        raise ValueError(f"`{name}` must return a dict with columns, got {shown(made)}")
    return made


class RowWorker(ABC):
    """Processes rows concurrently, in an event loop of its own. An actor of a pool has one.

    Args:
        batch_size: Rows of each batch of results.
        continue_on_error: Whether a row that fails is kept with the reason, or fails the job.
        carries_rows: Whether results are rows in one cell, for `Postprocess`.
        max_pending: The most rows that are processed at a time; None for no limit.
    """

    FATAL: ClassVar[tuple[type[Exception], ...]] = ()  # errors that are not those of one row

    def __init__(
        self, *, batch_size: int, continue_on_error: bool, carries_rows: bool, max_pending: int | None = None
    ) -> None:
        self._batch_size = batch_size
        self._continue_on_error = continue_on_error
        self._carries_rows = carries_rows
        self._room = contextlib.nullcontext() if max_pending is None else asyncio.Semaphore(max_pending)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="skate-data-llm", daemon=True).start()

    @abstractmethod
    async def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to add to a row. An exception is the reason why the row fails."""

    def columns_of_failed_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to add to a row that has failed, beside the reason."""
        return {}

    def __call__(self, table: pa.Table) -> Iterator[dict[str, list[Any]]]:
        """Process all rows of a table at a time, and yield the results in the order of the rows."""
        rows = [_unpacked(row) for row in BlockAccessor.for_block(table).iter_rows()]
        futures = [asyncio.run_coroutine_threadsafe(self._process(row), self._loop) for row in rows]
        try:
            for start in range(0, len(futures), self._batch_size):
                made = [future.result() for future in futures[start : start + self._batch_size]]
                yield self._packed(made)
        finally:
            for future in futures:
                future.cancel()

    async def _process(self, row: dict[str, Any]) -> dict[str, Any]:
        async with self._room:
            try:
                added = await self.process(row)
            except self.FATAL:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                if not self._continue_on_error:
                    raise RuntimeError(
                        f"a row failed: {reason}. The row: {shown(row)}. Correct it, or set should_continue_on_error="
                        f"True to keep such rows with the reason in the column {ERROR_COLUMN!r}"
                    ) from error
                return {**row, **self.columns_of_failed_row(row), ERROR_COLUMN: reason}
        return {**row, **added, ERROR_COLUMN: ""} if self._continue_on_error else {**row, **added}

    def _packed(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        if self._carries_rows:
            return {DATA_COLUMN: [CarriedRow(row) for row in rows]}
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}


def _unpacked(row: dict[str, Any]) -> dict[str, Any]:
    carried = row.get(DATA_COLUMN)
    return dict(carried.values) if isinstance(carried, CarriedRow) else row


def shown(value: Any) -> str:
    """Return the beginning of a value's representation, for an error."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
