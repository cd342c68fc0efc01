"""Feature hashing of columns of counts to vectors of a fixed length."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from skate.data._arguments import POSITIVE, checked
from skate.data._block import tensors, values
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, column_of
from skate.data._preprocessors.options import Option
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.preprocessors.utils import simple_hash

__all__ = ["FeatureHasher"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.feature_hasher")
class FeatureHasher(ColumnPreprocessor):
    """Sum columns into a vector, at the index given by the hash of each column's name.

    The vector has a fixed length for any number of columns, such as token counts.

    Args:
        columns: The columns.
        num_features: Length of the vector.
        output_column: Name of the output column.

    >>> import skate
    >>> ds = skate.data.from_items([{"I": 1, "like": 1}, {"I": 1, "like": 0}])
    >>> [row["v"].tolist() for row in FeatureHasher(["I", "like"], 4, "v").transform(ds).take_all()]
    [[1, 0, 0, 1], [1, 0, 0, 0]]
    """

    _is_fittable = False

    columns = Option[list[str]]()
    num_features = Option[int]()
    output_column = Option[str]()

    @checked(num_features=POSITIVE)
    def __init__(self, columns: list[str], num_features: int, output_column: str) -> None:
        super().__init__()
        self._columns = columns
        self._num_features = num_features
        self._output_column = output_column

    def get_output_columns(self) -> list[str]:
        """Return the output column."""
        return [self.output_column]

    def _width(self) -> int:
        return self.num_features

    def _compute_columns(self, table: pa.Table) -> dict[str, Column]:
        counts = [values.to_ndarray(column_of(table, name, self)) for name in self.columns]
        for name, each in zip(self.columns, counts, strict=True):
            if each.dtype.kind not in "biuf":
                kind = table.schema.field(name).type
                raise TypeError(f"FeatureHasher needs numbers, but the column {name!r} is of type {kind}")
        dtype = np.result_type(np.int64, *(each.dtype for each in counts))
        vectors = np.zeros((table.num_rows, self.num_features), dtype)
        for name, each in zip(self.columns, counts, strict=True):
            vectors[:, simple_hash(name, self.num_features)] += each
        return {self.output_column: tensors.from_ndarray(vectors)}
