"""The handling of rows for which user code fails: raise, drop, or keep them as dead-letter rows."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from skate.data._block import rows as row_blocks
from skate.data._block import tables
from skate.data._exec import meter
from skate.data._exec.retries import Retries
from skate.data.exceptions import user_error

CHOICES = ("raise", "drop", "dead_letter")


@dataclass(frozen=True, slots=True)
class FailedRows:
    """Dead-letter rows: rows for which user code failed, with the error of each."""

    table: pa.Table


@dataclass(frozen=True)
class Failures:
    """How a step handles errors of user code.

    Attributes:
        on_error: "raise" ends the job; "drop" drops and counts failing rows; "dead_letter" also keeps them with their
            errors.
        step: The name of the step in dead-letter rows.
    """

    on_error: str = "raise"
    step: str = ""

    def __post_init__(self) -> None:
        if self.on_error not in CHOICES:
            raise ValueError(f"on_error must be one of {', '.join(CHOICES)}, not {self.on_error!r}")

    def call_each(
        self,
        function: Callable[[Any], Any],
        values: list[Any],
        *,
        complete: bool = False,
        retries: Retries | None = None,
    ) -> tuple[list[Any], list[Any], FailedRows | None]:
        """Call a function with each value.

        Args:
            function: The function of the user.
            values: Rows.
            complete: Consume results that are iterables, because they may fail during iteration.
            retries: The errors after which the function is called again.

        Returns:
            The values for which the call succeeded, their results, and the failed rows.
        """
        if retries is not None:
            function = _retried(function, retries, complete=complete)
        if self.on_error == "raise":
            try:
                results = list(map(function, values))
                if complete:
                    results = [many if isinstance(many, list) else _to_list(many) for many in results]
            except Exception as error:
                raise user_error(error) from error.__cause__
            return values, results, None
        good, results, bad = [], [], []
        for value in values:
            try:
                result = function(value)
                result = _to_list(result) if complete else result
            except Exception as error:
                bad.append((value, error))
            else:
                good.append(value)
                results.append(result)
        return good, results, self._failed_rows([value for value, _ in bad], [error for _, error in bad])

    def call_batch(
        self,
        call: Callable[[pa.Table], Iterator[pa.Table]],
        block: pa.Table,
        retries: Retries | None = None,
    ) -> Iterator[pa.Table | FailedRows]:
        """Call a function with a batch; unless errors are raised, find the rows that make it fail.

        A failing batch is retried in halves, recursively: each good row is in exactly one call that succeeds.
        """
        if retries is not None:
            # Yield nothing before the whole call has succeeded: the next one would yield the same rows.
            yield from self.call_batch(lambda part: iter(retries.call(lambda: list(call(part)))), block)
            return
        if self.on_error == "raise":
            try:
                yield from call(block)
            except Exception as error:
                raise user_error(error) from error.__cause__
            return
        try:
            made = list(call(block))  # yield nothing before the whole call has succeeded
        except Exception as error:
            if block.num_rows <= 1:
                failed = self._failed_rows(list(row_blocks.to_rows(block)), [error] * block.num_rows)
                if failed is not None:
                    yield failed
                return
        else:
            yield from made
            return
        half = block.num_rows // 2
        yield from self.call_batch(call, tables.slice_rows(block, 0, half))
        yield from self.call_batch(call, tables.slice_rows(block, half, block.num_rows))

    def _failed_rows(self, values: list[Any], errors: list[Exception]) -> FailedRows | None:
        if not values:
            return None
        notes = meter.current().notes
        notes["failed_rows"] = notes.get("failed_rows", 0) + len(values)
        if self.on_error != "dead_letter":
            return None
        about = [
            {
                "row": value,
                "step": self.step,
                "error_type": type(error).__name__,
                "error": str(error),
                "traceback": "".join(traceback.format_exception(error)),
            }
            for value, error in zip(values, errors, strict=True)
        ]
        return FailedRows(row_blocks.to_block(about))


RAISE_ERRORS = Failures()


def _retried(function: Callable[[Any], Any], retries: Retries, *, complete: bool) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        row = dict(value) if isinstance(value, dict) else value  # a failed call may have changed it
        result = function(row)
        return _to_list(result) if complete else result

    return lambda value: retries.call(lambda: call(value))


def _to_list(many: Any) -> Any:
    """Return an iterable as a list, and anything else unchanged: the caller checks it."""
    if isinstance(many, (str, bytes, dict)) or not hasattr(many, "__iter__"):
        return many
    return list(many)
