"""Power transforms: make skewed columns more like a normal distribution."""

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
    # One curve for each side of zero, and Box-Cox on both: the left one mirrored, and with the power mirrored at 1.
    right = _box_cox(np.where(numbers >= 0, numbers, 0) + 1, power)
    left = -_box_cox(np.where(numbers < 0, -numbers, 0) + 1, 2 - power)
    return np.where(np.isnan(numbers), np.nan, np.where(numbers >= 0, right, left))


def _box_cox(numbers: npt.NDArray[Any], power: float) -> npt.NDArray[Any]:
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # negative numbers have no such power: they become null
        return np.asarray(np.log(numbers) if power == 0 else (np.power(numbers, power) - 1) / power)


_METHODS = {"yeo-johnson": _yeo_johnson, "box-cox": _box_cox}


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.power_transformer")
class PowerTransformer(ColumnPreprocessor):
    """Raise columns to a power, in a way that keeps their order.

    Args:
        columns: The columns.
        power: The power; 1 changes nothing but the origin.
        method: "yeo-johnson", for any numbers, or "box-cox", for positive ones.
        output_columns: Where the results go; the columns themselves if not given.

    Raises:
        ValueError: There is no such method, or there are not as many output columns as columns.

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
            raise ValueError(f"method is one of {', '.join(map(repr, _METHODS))}, not {method!r}")
        self._columns = columns
        self._power = power
        self._method = method
        self._output_columns = resolve_outputs(columns, output_columns)

    def _made_of_column(self, table: pa.Table, name: str) -> Column:
        return numbers_to_column(_METHODS[self.method](numbers_of(table, name, self), self.power))
