"""The rows that pass through a processor, and the base class of the workers that process them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from skate._base.suggestions import did_you_mean
from skate.data.block import BlockAccessor
from skate.data.llm._config import RowProcessorConfig

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "DATA_COLUMN",
    "ERROR_COLUMN",
    "CarriedRow",
    "Postprocess",
    "Preprocess",
    "RowWorker",
    "missing_column",
    "shown",
]

DATA_COLUMN = "__data"
ERROR_COLUMN = "__inference_error__"
_SHOWN = 200  # characters of a value in an error message


@dataclass(frozen=True, slots=True)
class CarriedRow:
    """A row in one cell, between two steps of a processor.

    In a block, all dicts of a column have the same keys, so a request would get fields that its row does not have.
    """

    values: dict[str, Any]


class Preprocess:
    """Adds the columns that a function returns for a row to the row.

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
    """Replaces a row with the row that a function returns for it. Failed rows are returned unchanged.

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
    """Processes rows concurrently in its own event loop. Each actor of a pool has one worker.

    Args:
        config: The configuration of the processor.
        carries_rows: Whether each result is a row in one cell, for `Postprocess`.
        max_pending: The maximum number of rows that are processed concurrently; None for no limit.
    """

    FATAL: ClassVar[
        tuple[type[Exception], ...]
    ] = ()  # errors that fail the job, because they concern all rows

    def __init__(
        self, config: RowProcessorConfig, *, carries_rows: bool, max_pending: int | None = None
    ) -> None:
        self._batch_size = config.batch_size
        self._continue_on_error = config.should_continue_on_error
        self._carries_rows = carries_rows
        self._room = contextlib.nullcontext() if max_pending is None else asyncio.Semaphore(max_pending)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="skate-data-llm", daemon=True).start()

    @abstractmethod
    async def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to add to a row. An exception is the reason why the row fails."""

    def columns_of_failed_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the columns to add to a row that has failed, in addition to the reason."""
        return {}

    def __call__(self, table: pa.Table) -> Iterator[dict[str, list[Any]]]:
        """Process all rows of a table concurrently, and yield the results in the order of the rows."""
        rows = [_unpack(row) for row in BlockAccessor.for_block(table).iter_rows()]
        futures = [asyncio.run_coroutine_threadsafe(self._process(row), self._loop) for row in rows]
        try:
            for start in range(0, len(futures), self._batch_size):
                made = [future.result() for future in futures[start : start + self._batch_size]]
                yield self._pack(made)
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
                        f"True to keep failed rows with the reason in the column {ERROR_COLUMN!r}"
                    ) from error
                return {**row, **self.columns_of_failed_row(row), ERROR_COLUMN: reason}
        return {**row, **added, ERROR_COLUMN: ""} if self._continue_on_error else {**row, **added}

    def _pack(self, rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
        if self._carries_rows:
            return {DATA_COLUMN: [CarriedRow(row) for row in rows]}
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}


def _unpack(row: dict[str, Any]) -> dict[str, Any]:
    carried = row.get(DATA_COLUMN)
    return dict(carried.values) if isinstance(carried, CarriedRow) else row


def missing_column(wanted: str, row: Mapping[str, Any], known: Iterable[str] = ()) -> ValueError:
    """Return the error for a row without a required column.

    Args:
        wanted: The column, or the alternatives.
        row: The row.
        known: Names of columns, of which the error suggests one that a column of the row resembles.
    """
    hint = next((hint for name in row if (hint := did_you_mean(name, known))), "")
    return ValueError(f"the row has no {wanted}, only {', '.join(map(repr, row))}.{hint}")


def shown(value: Any) -> str:
    """Return the beginning of a value's representation, for an error message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
