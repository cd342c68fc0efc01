"""The base classes of aggregations, which users subclass or construct."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pyarrow as pa

from skate.data._arguments import ArgumentTypeError, check_type, message
from skate.data._block import rows

__all__ = ["AggregateFn", "AggregateFnV2", "check_aggregations", "target"]

AccumulatorType = TypeVar("AccumulatorType")
AggOutputType = TypeVar("AggOutputType")


class AggregateFn:
    """Define an aggregation by functions.

    Args:
        init: Returns an empty accumulator for a group. Takes the key of the group: a value, a tuple for several keys,
            or None without groups.
        merge: Combines two accumulators.
        name: The name of the resulting column.
        accumulate_row: Takes an accumulator and a row, and returns the new accumulator.
        accumulate_block: Takes an accumulator and a `pyarrow.Table`, and returns the new accumulator.
        finalize: Computes the result from the last accumulator; by default, the accumulator is the result.

    Raises:
        ValueError: Neither or both of `accumulate_row` and `accumulate_block` are given.
        TypeError: The name is not a string, or another argument is not a function.

    Example:
        >>> longest = AggregateFn(
        ...     init=lambda key: 0,
        ...     accumulate_row=lambda length, row: max(length, len(row["word"])),
        ...     merge=max,
        ...     name="longest",
        ... )
        >>> longest.name
        'longest'
    """

    def __init__(
        self,
        init: Callable[[Any], Any],
        merge: Callable[[Any, Any], Any],
        name: str,
        accumulate_row: Callable[[Any, dict[str, Any]], Any] | None = None,
        accumulate_block: Callable[[Any, pa.Table], Any] | None = None,
        finalize: Callable[[Any], Any] | None = None,
    ) -> None:
        check_type("name", name, str, "a string")
        if (accumulate_row is None) == (accumulate_block is None):
            raise ValueError(
                f"the aggregation {name!r} needs exactly one of accumulate_row and accumulate_block: got"
                f" {'neither' if accumulate_row is None else 'both'}"
            )
        given = {
            "init": init,
            "merge": merge,
            "accumulate_row": accumulate_row,
            "accumulate_block": accumulate_block,
            "finalize": finalize,
        }
        for role, function in given.items():
            if function is not None and not callable(function):
                raise ArgumentTypeError(message(role, "a function", function))
        self.name = name
        self.init = init
        self.merge = merge
        self.accumulate_row = accumulate_row
        self.accumulate_block = accumulate_block or _by_rows(accumulate_row)
        self.finalize = finalize or _unchanged

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def _unchanged(accumulator: Any) -> Any:
    return accumulator


def _by_rows(accumulate_row: Any) -> Callable[[Any, pa.Table], Any]:
    def accumulate_block(accumulator: Any, block: pa.Table) -> Any:
        for row in rows.to_rows(block):
            accumulator = accumulate_row(accumulator, row)
        return accumulator

    return accumulate_block


class AggregateFnV2(AggregateFn, abc.ABC, Generic[AccumulatorType, AggOutputType]):
    """Define an aggregation by a class with `aggregate_block`, `combine` and, if needed, `finalize`.

    An accumulator of None means "no values yet". With `ignore_nulls`, a combination skips it; otherwise it makes the
    result None. `finalize` is not called for None.

    Args:
        name: The name of the resulting column.
        zero_factory: Returns the initial accumulator; unused with `ignore_nulls`, which starts with None.
        on: The aggregated column, if the aggregation has one.
        ignore_nulls: Skip nulls.

    Example:
        >>> class Product(AggregateFnV2):
        ...     def __init__(self, on):
        ...         super().__init__(f"product({on})", lambda: 1, on=on, ignore_nulls=True)
        ...
        ...     def aggregate_block(self, block):
        ...         return math.prod(block[self.get_target_column()].drop_null().to_pylist())
        ...
        ...     def combine(self, current_accumulator, new):
        ...         return current_accumulator * new
        >>> import math
        >>> Product("x").aggregate_block(pa.table({"x": [2, None, 3]}))
        6
    """

    def __init__(
        self, name: str, zero_factory: Callable[[], Any], *, on: str | None, ignore_nulls: bool
    ) -> None:
        if on is not None and not isinstance(on, str):
            raise ArgumentTypeError(message("on", "the name of a column", on))
        self._zero_factory = zero_factory
        self._target_col_name = on  # subclasses written for Ray read this name and `_ignore_nulls`
        self.ignore_nulls = self._ignore_nulls = ignore_nulls
        finalize = self.finalize
        super().__init__(
            init=self._start,
            merge=self._merge,
            name=name,
            accumulate_block=self._accumulate,
            finalize=_Finalize(finalize),
        )

    def get_target_column(self) -> str | None:
        """Return the name of the aggregated column; None for whole rows."""
        return self._target_col_name

    def get_agg_name(self) -> str:
        """Return the name of the resulting column."""
        return self.name

    @abc.abstractmethod
    def aggregate_block(self, block: pa.Table) -> AccumulatorType:
        """Return the accumulator of the rows of one group in a block."""

    @abc.abstractmethod
    def combine(self, current_accumulator: AccumulatorType, new: AccumulatorType) -> AccumulatorType:
        """Combine two accumulators."""

    # The constructor replaces this on instances by a wrapper that passes None through.
    def finalize(self, accumulator: AccumulatorType) -> AggOutputType | None:
        """Return the result from the last accumulator; by default the accumulator itself."""
        return accumulator  # type: ignore[return-value]  # the two are the same type where this is used

    def _start(self, key: Any) -> Any:
        return None if self.ignore_nulls else self._zero_factory()

    def _accumulate(self, accumulator: Any, block: pa.Table) -> Any:
        return self._merge(accumulator, self.aggregate_block(block))

    def _merge(self, current: Any, new: Any) -> Any:
        if current is None or new is None:
            if not self.ignore_nulls:
                return None
            return new if current is None else current
        return self.combine(current, new)


class _Finalize:
    """Calls a function unless its argument is None."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, accumulator: Any) -> Any:
        return None if accumulator is None else self._function(accumulator)


def check_aggregations(aggs: tuple[Any, ...]) -> None:
    """Raise ValueError without aggregations, and ArgumentTypeError for objects that are no aggregation."""
    if not aggs:
        raise ValueError("Aggregate requires at least one aggregation.")
    for each in aggs:
        check_type("aggs", each, AggregateFn, "an aggregation such as Sum('a')")


def target(agg: AggregateFnV2[Any, Any], block: pa.Table) -> pa.ChunkedArray:
    """Return the aggregated column of a block."""
    return block.column(agg.get_target_column())
