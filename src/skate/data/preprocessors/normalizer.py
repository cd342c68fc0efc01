"""Normalization of rows: columns as a vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from skate.data._arguments import checked
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, numbers_of, numbers_to_column
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor

__all__ = ["Normalizer"]

# Functions of a matrix of absolute values with one row per column. Missing values do not count towards the norm.
_NORMS: dict[str, Callable[[Any], Any]] = {
    "l1": lambda sizes: np.nansum(sizes, axis=0),
    "l2": lambda sizes: np.sqrt(np.nansum(np.square(sizes), axis=0)),
    "max": lambda sizes: np.fmax.reduce(sizes, axis=0),
}


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.normalizer")
class Normalizer(ColumnPreprocessor):
    """Scale each row so that the vector of the columns has length 1; a vector of zeros becomes null.

    Args:
        columns: The columns of the vector.
        norm: The definition of length: "l2", the square root of the sum of squares; "l1", the sum of absolute values;
            or "max", the largest absolute value.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The norm is unknown, or the number of output columns differs from the number of columns.

    >>> import skate
    >>> ds = skate.data.from_items([{"x": 3, "y": 4}])
    >>> Normalizer(["x", "y"]).transform(ds).take_all()
    [{'x': 0.6, 'y': 0.8}]
    """

    _is_fittable = False

    columns = Option[list[str]]()
    norm = Option("l2")
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self, columns: list[str], norm: str = "l2", *, output_columns: list[str] | None = None
    ) -> None:
        super().__init__()
        if norm not in _NORMS:
            raise ValueError(f"norm must be one of {', '.join(map(repr, _NORMS))}, got {norm!r}")
        self._columns = columns
        self._norm = norm
        self._output_columns = resolve_outputs(columns, output_columns)

    def _compute_columns(self, table: pa.Table) -> dict[str, Column]:
        parts = [numbers_of(table, name, self) for name in self.columns]
        lengths = _NORMS[self.norm](np.abs(np.stack(parts)))
        with np.errstate(divide="ignore", invalid="ignore"):  # vectors of zeros become null
            return {
                output: numbers_to_column(part / lengths)
                for output, part in zip(self.output_columns, parts, strict=True)
            }
