"""Text into tokens and counts, and columns into vectors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import skate
from skate.data.exceptions import UserCodeException
from skate.data.preprocessors import (
    Concatenator,
    CountVectorizer,
    FeatureHasher,
    HashingVectorizer,
    OneHotEncoder,
    Tokenizer,
)
from skate.data.preprocessors.utils import simple_hash, simple_split_tokenizer
from tests.data.preprocessors.support import column, dataset

TEXTS = ["a b b c c c", "a a a a c", ""]


def characters(text: str) -> list[str]:
    return list(text)


class TestTokens:
    def test_are_what_is_between_spaces(self) -> None:
        assert simple_split_tokenizer("a  b") == ["a", "", "b"]
        assert column(Tokenizer(["t"]).transform(dataset(t=["x yz", "x"])), "t") == [["x", "yz"], ["x"]]

    def test_or_what_a_function_says(self) -> None:
        made = Tokenizer(["t"], characters, output_columns=["c"])
        assert made.transform(dataset(t=["xy"])).take_all() == [{"t": "xy", "c": ["x", "y"]}]

    def test_there_are_none_of_null(self) -> None:
        assert column(Tokenizer(["t"]).transform(dataset(t=["x", None])), "t") == [["x"], None]

    def test_of_no_rows_have_their_type_nevertheless(self) -> None:
        none = pa.table({"t": pa.array([], pa.string())})
        assert Tokenizer(["t"])._transform_arrow(none).schema.field("t").type == pa.list_(pa.string())


class TestHashes:
    def test_are_the_same_on_every_machine(self) -> None:
        found = [simple_hash(value, 100) for value in (1, "a", "banana", [1, 2, "apple"])]
        assert found == [15, 99, 10, 58]


class TestCountVectorizer:
    def test_frequent_tokens_come_first(self) -> None:
        made = CountVectorizer(["t"])
        assert column(made.fit_transform(dataset(2, t=TEXTS)), "t") == [
            [1, 3, 2, 0],
            [4, 1, 0, 0],
            [0, 0, 0, 1],
        ]
        assert made.stats_ == {"token_counts(t)": Counter({"a": 5, "c": 4, "b": 2, "": 1})}

    def test_rare_tokens_can_be_left_out(self) -> None:
        made = CountVectorizer(["t"], max_features=2)
        assert column(made.fit_transform(dataset(2, t=TEXTS)), "t") == [[1, 3], [4, 1], [0, 0]]
        assert made.stats_ == {"token_counts(t)": Counter({"a": 5, "c": 4})}

    def test_null_stays_null(self) -> None:
        made = CountVectorizer(["t"])
        assert column(made.fit_transform(dataset(t=["x", None, "x x"])), "t") == [[1], None, [2]]

    def test_new_tokens_are_not_counted(self) -> None:
        made = CountVectorizer(["t"], characters).fit(dataset(t=["ab"]))
        assert made.transform_batch(pd.DataFrame({"t": ["bbz"]}))["t"].tolist() == [[0, 2]]

    def test_a_saved_one_does_the_same(self) -> None:
        made = CountVectorizer(["t"], characters).fit(dataset(t=["ab"]))
        loaded = CountVectorizer.deserialize(made.serialize())
        assert loaded.transform_batch(pd.DataFrame({"t": ["b"]}))["t"].tolist() == [[0, 1]]


class TestHashingVectorizer:
    def test_tokens_are_counted_where_their_hash_says(self) -> None:
        made = HashingVectorizer(["t"], num_features=3)
        assert column(made.transform(dataset(2, t=[*TEXTS[:2], None])), "t") == [[0, 4, 2], [0, 5, 0], None]


class TestFeatureHasher:
    def test_columns_are_added_where_the_hash_of_their_name_says(self) -> None:
        ds = dataset(I=[1, 1], like=[2, 0])
        made = FeatureHasher(["I", "like"], num_features=8, output_column="v")
        expected = np.zeros((2, 8), np.int64)
        expected[:, simple_hash("I", 8)] += [1, 1]
        expected[:, simple_hash("like", 8)] += [2, 0]
        assert np.stack(column(made.transform(ds), "v")).tolist() == expected.tolist()
        assert made.get_output_columns() == ["v"]

    def test_text_cannot_be_added(self) -> None:
        made = FeatureHasher(["s"], num_features=8, output_column="v")
        with pytest.raises(TypeError, match="the column 's' is of type string"):
            made.transform_batch(pd.DataFrame({"s": ["a"]}))


class TestConcatenator:
    def test_columns_become_a_tensor_in_the_given_order(self) -> None:
        found = Concatenator(["b", "a"]).transform(dataset(2, a=[1, 2], b=[3.5, 4.0], c=["x", "y"]))
        assert found.columns() == ["c", "concat_out"]
        assert np.stack(column(found, "concat_out")).tolist() == [[3.5, 1.0], [4.0, 2.0]]

    def test_the_type_can_be_chosen(self) -> None:
        found = Concatenator(["a"], dtype=np.float32).transform(dataset(a=[1]))
        assert column(found, "concat_out")[0].dtype == np.float32

    def test_null_becomes_nan(self) -> None:
        found = Concatenator(["a", "b"]).transform(dataset(a=[1, 2], b=[None, 3.0]))
        assert np.isnan(column(found, "concat_out")[0]).tolist() == [False, True]

    def test_the_result_can_have_the_name_of_a_part(self) -> None:
        found = Concatenator(["a", "b"], output_column_name="a").transform(dataset(a=[1], b=[2], c=[3]))
        assert found.columns() == ["c", "a"]

    @pytest.mark.parametrize("values", [[[2, 3], [4, 5]], [np.array([2, 3]), np.array([4, 5])]])
    def test_lists_and_tensors_can_be_flattened(self, values: list[Any]) -> None:
        found = Concatenator(["a", "l"], flatten=True).transform(dataset(a=[1, 2], l=values))
        assert np.stack(column(found, "concat_out")).tolist() == [[1, 2, 3], [2, 4, 5]]

    def test_lists_of_several_lengths_can_be_flattened(self) -> None:
        made = Concatenator(["a", "l"], flatten=True, dtype=np.float64)
        found = column(made.transform(dataset(a=[1, 2], l=[[2], [4, 5]])), "concat_out")
        assert [vector.tolist() for vector in found] == [[1.0, 2.0], [2.0, 4.0, 5.0]]

    def test_unflattened_lists_are_elements(self) -> None:
        found = column(Concatenator(["a", "l"]).transform(dataset(a=[1], l=[[2, 3]])), "concat_out")
        assert found[0].tolist() == [1, [2, 3]]

    def test_a_type_for_unflattened_lists_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="flatten=True"):
            Concatenator(["l"], dtype=np.float32).transform_batch(pd.DataFrame({"l": [[1, 2]]}))

    def test_text_and_numbers_become_objects(self) -> None:
        found = column(Concatenator(["s", "i"]).transform(dataset(s=["a"], i=[1])), "concat_out")
        assert found[0].tolist() == ["a", 1]

    def test_vectors_of_an_encoder_can_be_part_of_it(self) -> None:
        encoded = OneHotEncoder(["s"]).fit_transform(dataset(s=["b", "a"], x=[7, 8]))
        found = Concatenator(["s", "x"], flatten=True).transform(encoded)
        assert np.stack(column(found, "concat_out")).tolist() == [[0, 1, 7], [1, 0, 8]]

    def test_of_no_rows_there_are_no_vectors(self) -> None:
        none = pa.table({"a": pa.array([], pa.int64()), "v": pa.array([], pa.list_(pa.int64(), 2))})
        for flatten in (True, False):
            assert Concatenator(["a", "v"], flatten=flatten)._transform_arrow(none).num_rows == 0

    @pytest.mark.parametrize("raise_if_missing", [True, False])
    def test_a_missing_column_is_named(self, raise_if_missing: bool) -> None:
        made = Concatenator(["a", "b"], raise_if_missing=raise_if_missing)
        with pytest.raises(UserCodeException, match="needs the columns 'b'") as caught:
            made.transform(skate.data.from_items([{"a": 1}])).materialize()
        assert isinstance(caught.value, ValueError)

    def test_there_has_to_be_one(self) -> None:
        with pytest.raises(ValueError, match="one column or more"):
            Concatenator([])

    def test_its_text_has_only_what_is_not_the_default(self) -> None:
        assert repr(Concatenator(["a"])) == "Concatenator(columns=['a'])"
        assert repr(Concatenator(["a"], flatten=True)) == "Concatenator(columns=['a'], flatten=True)"
