"""Power transforms, which make skewed columns more normally distributed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skate.data._arguments import checked
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, numbers_of, numbers_to_column
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor

__all__ = ["PowerTransformer"]


def _yeo_johnson(numbers: npt.NDArray[Any], power: float) -> npt.NDArray[Any]:
    # Box-Cox on each side of zero; on the left, the values are mirrored, and the power is mirrored at 1.
    right = _box_cox(np.where(numbers >= 0, numbers, 0) + 1, power)
    left = -_box_cox(np.where(numbers < 0, -numbers, 0) + 1, 2 - power)
    return np.where(np.isnan(numbers), np.nan, np.where(numbers >= 0, right, left))


def _box_cox(numbers: npt.NDArray[Any], power: float) -> npt.NDArray[Any]:
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # negative numbers have no real power and become null
        return np.asarray(np.log(numbers) if power == 0 else (np.power(numbers, power) - 1) / power)


_METHODS = {"yeo-johnson": _yeo_johnson, "box-cox": _box_cox}


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.power_transformer")
class PowerTransformer(ColumnPreprocessor):
    """Apply a monotonic power transform to columns.

    Args:
        columns: The columns.
        power: The power; 1 only shifts the values.
        method: "yeo-johnson" for any numbers, or "box-cox" for positive ones.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The method is unknown, or the number of output columns differs from the number of columns.

    >>> import skate
    >>> PowerTransformer(["id"], power=2).transform(skate.data.range(3)).take_all()
    [{'id': 0.0}, {'id': 1.5}, {'id': 4.0}]
    """

    _is_fittable = False

    columns = Option[list[str]]()
    power = Option[float]()
    method = Option("yeo-johnson")
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self,
        columns: list[str],
        power: float,
        method: str = "yeo-johnson",
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        if method not in _METHODS:
            raise ValueError(f"method must be one of {', '.join(map(repr, _METHODS))}, got {method!r}")
        self._columns = columns
        self._power = power
        self._method = method
        self._output_columns = resolve_outputs(columns, output_columns)

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        return numbers_to_column(_METHODS[self.method](numbers_of(table, name, self), self.power))
