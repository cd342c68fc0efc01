"""Datetime functions: `col("created").dt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

from skate.data._arguments import checked_methods
from skate.data._expressions.calls import PyArrowComputeUDFExpr, compute
from skate.data._expressions.expr import UNKNOWN
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Callable

    from skate.data._expressions.expr import Expr

TemporalUnit: TypeAlias = Literal[
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
    "nanosecond",
]

_COUNT = DataType(pa.int64())


@checked_methods("unit")
class DatetimeNamespace:
    """Datetime functions.

    >>> from skate.data.expressions import col
    >>> col("created").dt.year()
    UDF(dt.year)
        └── arg[0]: COL('created')
    """

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def _part(self, method: str, function: Callable[..., Any]) -> PyArrowComputeUDFExpr:
        return compute(f"dt.{method}", function, self._expr, returns=_COUNT)

    def year(self) -> PyArrowComputeUDFExpr:
        """Return the year."""
        return self._part("year", pc.year)

    def month(self) -> PyArrowComputeUDFExpr:
        """Return the month, from 1 to 12."""
        return self._part("month", pc.month)

    def day(self) -> PyArrowComputeUDFExpr:
        """Return the day of the month, from 1."""
        return self._part("day", pc.day)

    def hour(self) -> PyArrowComputeUDFExpr:
        """Return the hour."""
        return self._part("hour", pc.hour)

    def minute(self) -> PyArrowComputeUDFExpr:
        """Return the minute."""
        return self._part("minute", pc.minute)

    def second(self) -> PyArrowComputeUDFExpr:
        """Return the second."""
        return self._part("second", pc.second)

    def strftime(self, fmt: str) -> PyArrowComputeUDFExpr:
        """Format the time, for example with `%Y-%m-%d`."""
        return compute("dt.strftime", pc.strftime, self._expr, returns=DataType(pa.string()), format=fmt)

    def ceil(self, unit: TemporalUnit) -> PyArrowComputeUDFExpr:
        """Round up to a whole unit."""
        return self._round("ceil", pc.ceil_temporal, unit)

    def floor(self, unit: TemporalUnit) -> PyArrowComputeUDFExpr:
        """Round down to a whole unit."""
        return self._round("floor", pc.floor_temporal, unit)

    def round(self, unit: TemporalUnit) -> PyArrowComputeUDFExpr:
        """Round to the nearest whole unit; halves up."""
        return self._round("round", pc.round_temporal, unit)

    def _round(self, method: str, function: Callable[..., Any], unit: TemporalUnit) -> PyArrowComputeUDFExpr:
        if unit not in get_args(TemporalUnit):
            raise ValueError(
                f"dt.{method}: unit must be one of {', '.join(get_args(TemporalUnit))}, got {unit!r}"
            )
        return compute(f"dt.{method}", function, self._expr, returns=UNKNOWN, unit=unit)
