"""Vectorization of text to token counts."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from skate.data._arguments import POSITIVE, checked
from skate.data._block import values
from skate.data._preprocessors.categories import add_counts, count_per_row, load_counts
from skate.data._preprocessors.columns import Column, ColumnPreprocessor, column_of, vectors_to_column
from skate.data._preprocessors.options import Option, resolve_outputs
from skate.data._preprocessors.registry import SerializablePreprocessor
from skate.data.aggregate import AggregateFnV2
from skate.data.preprocessor import Preprocessor
from skate.data.preprocessors.utils import simple_hash, simple_split_tokenizer

if TYPE_CHECKING:
    from skate.data.dataset import Dataset

__all__ = ["CountVectorizer", "HashingVectorizer"]

Tokenize = Callable[[str], list[str]]


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.hashing_vectorizer")
class HashingVectorizer(ColumnPreprocessor):
    """Replace text with a vector of token counts, indexed by the hash of the token; null stays null.

    It needs no fitting, and the length of the vectors does not depend on the text, but different tokens may share an
    index.

    Args:
        columns: The columns.
        num_features: Length of the vectors.
        tokenization_fn: Function that returns the tokens of a text; by default it splits at spaces.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> HashingVectorizer(["item"], num_features=3).transform(skate.data.from_items(["a b b"])).take_all()
    [{'item': [0, 1, 2]}]
    """

    _is_fittable = False

    columns = Option[list[str]]()
    num_features = Option[int]()
    tokenization_fn = Option[Tokenize](simple_split_tokenizer)
    output_columns = Option[list[str]](like="columns")

    @checked(num_features=POSITIVE)
    def __init__(
        self,
        columns: list[str],
        num_features: int,
        tokenization_fn: Tokenize | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self._columns = columns
        self._num_features = num_features
        self._tokenization_fn = tokenization_fn or simple_split_tokenizer
        self._output_columns = resolve_outputs(columns, output_columns)

    def _width(self) -> int:
        return self.num_features

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        place = _HashIndices(self.num_features).__getitem__
        return _vectors(column_of(table, name, self), self.tokenization_fn, place, self.num_features)


@SerializablePreprocessor(version=1, identifier="io.ray.preprocessors.count_vectorizer")
class CountVectorizer(ColumnPreprocessor):
    """Replace text with a vector of the count of each token; null stays null.

    The most frequent tokens of the fitted dataset come first. Tokens that did not occur during fitting are ignored.

    Args:
        columns: The columns.
        tokenization_fn: Function that returns the tokens of a text; by default it splits at spaces.
        max_features: Maximum number of tokens per column, the most frequent first.
        output_columns: Names of the output columns; the input columns by default.

    Raises:
        ValueError: The number of output columns differs from the number of columns.

    >>> import skate
    >>> ds = skate.data.from_items(["b b a", "c b"])
    >>> CountVectorizer(["item"], max_features=2).fit_transform(ds).take_all()
    [{'item': [2, 1]}, {'item': [1, 0]}]
    """

    columns = Option[list[str]]()
    tokenization_fn = Option[Tokenize](simple_split_tokenizer)
    max_features = Option[int | None](None)
    output_columns = Option[list[str]](like="columns")

    @checked(max_features=POSITIVE)
    def __init__(
        self,
        columns: list[str],
        tokenization_fn: Tokenize | None = None,
        max_features: int | None = None,
        *,
        output_columns: list[str] | None = None,
    ) -> None:
        super().__init__()
        self._columns = columns
        self._tokenization_fn = tokenization_fn or simple_split_tokenizer
        self._max_features = max_features
        self._output_columns = resolve_outputs(columns, output_columns)

    def _fit(self, ds: Dataset) -> Preprocessor:
        self.stat_computation_plan.add_aggregator(
            aggregator_fn=partial(_TokenCounts, tokenize=self.tokenization_fn), columns=self.columns
        )
        return self

    def _finish_fit(self, found: dict[str, Any]) -> dict[str, Any]:
        counts = {name: Counter(load_counts(each)) for name, each in found.items()}
        return {name: Counter(dict(each.most_common(self.max_features))) for name, each in counts.items()}

    def _width(self) -> int:
        return sum(len(self.stats_[f"token_counts({name})"]) for name in self.columns)

    def _compute_column(self, table: pa.Table, name: str) -> Column:
        counts = Counter(self.stats_[f"token_counts({name})"])
        places = {token: number for number, (token, _) in enumerate(counts.most_common())}
        place = partial(_index_of, places)
        return _vectors(column_of(table, name, self), self.tokenization_fn, place, len(places))


class _TokenCounts(AggregateFnV2[dict[Any, int], bytes]):
    """Count the tokens of a column of text."""

    def __init__(self, on: str, *, tokenize: Tokenize) -> None:
        super().__init__(f"token_counts({on})", dict, on=on, ignore_nulls=True)
        self._column = on
        self._tokenize = tokenize

    def aggregate_block(self, block: pa.Table) -> dict[Any, int]:
        texts = values.to_list(block.column(self._column).drop_null())
        return dict(Counter(itertools.chain.from_iterable(map(self._tokenize, texts))))

    def combine(self, current_accumulator: dict[Any, int], new: dict[Any, int]) -> dict[Any, int]:
        return add_counts(current_accumulator, new)

    def finalize(self, accumulator: dict[Any, int]) -> bytes:
        return pickle.dumps(accumulator)


def _index_of(places: dict[Any, int], token: Any) -> int:
    return places.get(token, -1)


class _HashIndices(dict[Any, int]):
    """Cache of the index of each token in a vector, so that its hash is computed once."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self._width = width

    def __missing__(self, token: Any) -> int:
        place = self[token] = simple_hash(token, self._width)
        return place


def _vectors(texts: Column, tokenize: Tokenize, place: Callable[[Any], int], width: int) -> pa.Array:
    tokens = [() if text is None else tokenize(text) for text in values.to_list(texts)]
    row_of = np.repeat(np.arange(len(tokens)), [len(each) for each in tokens])
    places = np.fromiter(map(place, itertools.chain.from_iterable(tokens)), np.int64, len(row_of))
    counts = count_per_row(row_of, places, len(tokens), width)
    return vectors_to_column(counts, missing=np.asarray(texts.is_null()))
