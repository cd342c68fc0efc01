"""Tokenization of text."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from skate.data._arguments import checked
from skate.data._block import values
from skate.data._block.columns import from_values
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, column_of
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.preprocessors.utils import simple_split_tokenizer

__all__ = ["Tokenizer"]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.tokenizer")
class Tokenizer(ColumnPreprocessor):
    """Replace text with the list of its tokens; null stays null.

    Args:
        columns: The columns.
        tokenization_fn: Function that returns the tokens of a text; by default it splits at spaces.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> Tokenizer(["item"]).transform(skate.data.from_items(["hello world"])).take_all()
    [{'item': ['hello', 'world']}]
    """

    _is_fittable = False

    columns = Option[list[str]]()
    tokenization_fn = Option[Callable[[str], list[str]]](simple_split_tokenizer)
    output_columns = Option[list[str]](like="columns")

    @checked()
    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Callable[[str], list[str]] | None = None,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self._columns = columns
        self._tokenization_fn = tokenization_fn or simple_split_tokenizer
        self._output_columns = resolve_outputs(columns, output_columns)

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        texts = values.to_list(column_of(table, name, self))
        tokens = [None if text is None else self.tokenization_fn(text) for text in texts]
        return from_values(tokens, name) if texts else pa.array([], pa.list_(pa.string()))
