"""Encoding values as numbers, vectors and categories."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import skate
from skate.data.preprocessor import PreprocessorNotFittedException, SerializablePreprocessorBase
from skate.data.preprocessors import (
    Categorizer,
    CustomKBinsDiscretizer,
    LabelEncoder,
    MultiHotEncoder,
    OneHotEncoder,
    OrdinalEncoder,
    UniformKBinsDiscretizer,
)
from tests.data.preprocessors.support import column, dataset

ENCODERS = [
    partial(OrdinalEncoder, ["x"]),
    partial(OneHotEncoder, ["x"]),
    partial(MultiHotEncoder, ["x"]),
    partial(LabelEncoder, "x"),
]


class TestNulls:
    @pytest.mark.parametrize("make", ENCODERS, ids=lambda make: make.func.__name__)
    @pytest.mark.parametrize("missing", [None, np.nan])
    def test_are_an_error_when_an_encoder_is_fitted(self, make: Any, missing: Any) -> None:
        ds = skate.data.from_items([{"x": 1.0}, {"x": missing}])
        with pytest.raises(ValueError, match=r"the column 'x': 1 values are null\. Fill them first"):
            make().fit(ds)

    @pytest.mark.parametrize("make", ENCODERS, ids=lambda make: make.func.__name__)
    def test_are_an_error_when_they_are_encoded(self, make: Any) -> None:
        made = make().fit(dataset(x=[1.0, 2.0]))
        with pytest.raises(ValueError, match=r"the column 'x': 1 of 2 values are null\. Fill them first"):
            made.transform_batch(pd.DataFrame({"x": [1.0, None]}))


class TestOrdinalEncoder:
    def test_values_get_numbers_in_their_order(self) -> None:
        made = OrdinalEncoder(["s", "i"])
        found = made.fit_transform(dataset(2, s=["b", "a", "b"], i=[10, 5, 7]))
        assert found.take_all() == [{"s": 1, "i": 2}, {"s": 0, "i": 0}, {"s": 1, "i": 1}]
        assert made.stats_ == {"unique_values(s)": {"a": 0, "b": 1}, "unique_values(i)": {5: 0, 7: 1, 10: 2}}

    def test_a_new_value_becomes_null(self) -> None:
        made = OrdinalEncoder(["s"]).fit(dataset(s=["a", "b"]))
        assert column(made.transform(dataset(s=["b", "new"])), "s") == [1, None]

    def test_elements_of_lists_are_encoded(self) -> None:
        made = OrdinalEncoder(["l"])
        found = made.fit_transform(dataset(2, l=[["b"], [], ["c", "a", "b"]]))
        assert column(found, "l") == [[1], [], [2, 0, 1]]
        assert made.transform_batch(pd.DataFrame({"l": [["a", "new"]]}))["l"].tolist() == [[0, None]]

    def test_whole_lists_are_encoded_if_asked_for(self) -> None:
        made = OrdinalEncoder(["l"], encode_lists=False)
        found = made.fit_transform(dataset(2, l=[["b"], [], ["a", "z"], ["b"]]))
        assert column(found, "l") == [2, 0, 1, 2]
        assert made.stats_ == {"unique_values(l)": {(): 0, ("a", "z"): 1, ("b",): 2}}

    def test_arrays_are_lists(self) -> None:
        made = OrdinalEncoder(["l"])
        ds = dataset(l=[np.array([3, 5]), np.array([5, 9])])
        assert column(made.fit_transform(ds), "l") == [[0, 1], [1, 2]]

    def test_numbers_of_another_type_are_the_same_values(self) -> None:
        made = OrdinalEncoder(["x"]).fit(dataset(x=[1, 2]))
        assert made.transform_batch(pd.DataFrame({"x": [2.0, 1.0, 1.5]}))["x"].tolist()[:2] == [1, 0]
        assert made.transform_batch(pd.DataFrame({"x": ["1"]}))["x"].isna().all()

    def test_categories_are_encoded_by_value(self) -> None:
        frame = pd.DataFrame({"c": pd.Categorical(["z", "a"], categories=["z", "a", "m"])})
        found = OrdinalEncoder(["c"]).fit(skate.data.from_pandas(frame)).transform_batch(frame)
        assert found["c"].tolist() == [1, 0]

    def test_it_takes_and_returns_tables(self) -> None:
        made = OrdinalEncoder(["s"], output_columns=["n"]).fit(dataset(s=["a", "b"]))
        chunks = pa.chunked_array([["b"], ["a", "new"]])
        assert made.transform_batch(pa.table({"s": chunks}))["n"].to_pylist() == [1, 0, None]


class TestOneHotEncoder:
    def test_vectors_have_one_length(self) -> None:
        found = OneHotEncoder(["s"]).fit_transform(dataset(2, s=["b", "a", "c"])).to_arrow()
        assert found.schema.field("s").type == pa.list_(pa.uint8(), 3)
        assert found["s"].to_pylist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]

    def test_a_new_value_becomes_zeros(self) -> None:
        made = OneHotEncoder(["s"]).fit(dataset(s=["a", "b"]))
        assert column(made.transform(dataset(s=["new"])), "s") == [[0, 0]]

    def test_the_most_frequent_values_of_all_blocks_are_kept(self) -> None:
        # c is never among the two most frequent of a block.
        blocks = [["a"] * 5 + ["b"] * 4 + ["c"] * 3, ["d"] * 4 + ["e"] * 4 + ["c"] * 3]
        ds = skate.data.from_pandas([pd.DataFrame({"s": block}) for block in blocks])
        made = OneHotEncoder(["s"], max_categories={"s": 2}).fit(ds)
        assert made.stats_ == {"unique_values(s)": {"a": 0, "c": 1}}

    def test_of_equally_frequent_values_the_first_in_order_are_kept(self) -> None:
        made = OneHotEncoder(["s"], max_categories={"s": 2}).fit(dataset(s=["z", "y", "x"]))
        assert made.stats_ == {"unique_values(s)": {"x": 0, "y": 1}}

    def test_a_list_is_one_value(self) -> None:
        found = OneHotEncoder(["l"]).fit_transform(dataset(l=[["a"], [], ["a"]]))
        assert column(found, "l") == [[0, 1], [1, 0], [0, 1]]

    def test_a_limit_for_another_column_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"max_categories has 't', but the columns are \['s'\]"):
            OneHotEncoder(["s"], max_categories={"t": 2}).fit(dataset(s=["a"]))

    def test_many_wide_vectors_are_made_a_part_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("skate.data._preprocessors.columns._MAX_NUMBERS", 20)
        values = list(range(10)) * 3
        found = OneHotEncoder(["x"]).fit_transform(dataset(x=values)).materialize()
        assert [int(np.argmax(vector)) for vector in column(found, "x")] == values


class TestMultiHotEncoder:
    def test_elements_are_counted(self) -> None:
        made = MultiHotEncoder(["l", "s"])
        ds = dataset(2, l=[["b"], [], ["c", "a", "b"], ["a", "a"]], s=["x", "y", "x", "x"])
        found = made.fit_transform(ds)
        assert column(found, "l") == [[0, 1, 0], [0, 0, 0], [1, 1, 1], [2, 0, 0]]
        assert column(found, "s") == [[1, 0], [0, 1], [1, 0], [1, 0]]

    def test_new_elements_are_not_counted(self) -> None:
        made = MultiHotEncoder(["l"]).fit(dataset(l=[["a", "b"]]))
        assert made.transform_batch(pd.DataFrame({"l": [["new", "b"]]}))["l"].tolist() == [[0, 1]]

    def test_the_most_frequent_elements_are_kept(self) -> None:
        made = MultiHotEncoder(["l"], max_categories={"l": 1}).fit(dataset(l=[["a", "b"], ["b"]]))
        assert made.stats_ == {"unique_values(l)": {"b": 0}}


class TestLabelEncoder:
    def test_labels_become_numbers_and_labels_again(self) -> None:
        ds = dataset(2, label=["dog", "cat", "dog"], x=[1, 2, 3])
        made = LabelEncoder("label")
        numbers = made.fit_transform(ds)
        assert column(numbers, "label") == [1, 0, 1]
        assert made.inverse_transform(numbers).take_all() == ds.take_all()

    def test_numbers_can_have_a_column_of_their_own(self) -> None:
        made = LabelEncoder("label", output_column="n")
        numbers = made.fit_transform(dataset(label=["dog", "cat"]))
        assert numbers.take_all() == [{"label": "dog", "n": 1}, {"label": "cat", "n": 0}]
        assert column(made.inverse_transform(numbers.drop_columns(["label"])), "label") == ["dog", "cat"]
        assert made.get_input_columns() == ["label"]
        assert made.get_output_columns() == ["n"]

    def test_there_are_no_labels_before_it_is_fitted(self) -> None:
        with pytest.raises(PreprocessorNotFittedException, match="inverse_transform"):
            LabelEncoder("label").inverse_transform(dataset(label=[0]))


class TestCategorizer:
    def test_values_become_categories(self) -> None:
        made = Categorizer(["s"])
        found = made.fit_transform(dataset(2, s=["b", "a", None])).to_pandas()
        assert found["s"].dtype == pd.CategoricalDtype(["a", "b"])
        assert made.stats_ == {"s": pd.CategoricalDtype(["a", "b"])}

    def test_categories_can_be_given(self) -> None:
        given = pd.CategoricalDtype(["low", "high"], ordered=True)
        made = Categorizer(["s", "i"], dtypes={"s": given}, output_columns=["S", "I"])
        found = made.fit_transform(dataset(s=["high", "none"], i=[2, 1])).to_pandas()
        assert found["S"].dtype == given
        assert found["S"].tolist()[0] == "high"
        assert pd.isna(found["S"].iloc[1])
        assert found["I"].dtype == pd.CategoricalDtype([1, 2])

    def test_all_can_be_given(self) -> None:
        given = pd.CategoricalDtype(["a"])
        made = Categorizer(["s"], dtypes={"s": given}).fit(dataset(s=["b"]))
        assert made.stats_ == {"s": given}

    def test_a_column_of_nulls_has_none(self) -> None:
        table = pa.table({"s": pa.array([None, None], pa.string())})
        assert column(Categorizer(["s"]).fit_transform(skate.data.from_arrow(table)), "s") == [None, None]


FITTED = [
    OrdinalEncoder(["s"]),
    OneHotEncoder(["s"], max_categories={"s": 1}),
    MultiHotEncoder(["s"]),
    LabelEncoder("s"),
    Categorizer(["s"], dtypes={"s": pd.CategoricalDtype(["a"])}),
]


@pytest.mark.parametrize("made", FITTED, ids=lambda made: type(made).__name__)
def test_a_saved_encoder_does_the_same(made: Any) -> None:
    batch = pd.DataFrame({"s": ["a", "b", "a"]})
    made.fit(skate.data.from_pandas(batch))
    loaded = SerializablePreprocessorBase.deserialize(made.serialize())
    assert repr(loaded) == repr(made)
    pd.testing.assert_frame_equal(loaded.transform_batch(batch), made.transform_batch(batch))


NUMBERS = [0.2, 1.4, 2.5, 6.2, 9.7, 2.1]


class TestDiscretizers:
    @pytest.mark.parametrize("right", [True, False])
    @pytest.mark.parametrize("bins", [1, 3, 4])
    def test_uniform_bins_are_those_of_pandas(self, bins: int, right: bool) -> None:
        made = UniformKBinsDiscretizer(["x"], bins=bins, right=right)
        expected, edges = pd.cut(NUMBERS, bins, labels=False, right=right, retbins=True)
        assert column(made.fit_transform(dataset(2, x=NUMBERS)), "x") == expected.tolist()
        assert made.stats_["x"].tolist() == pytest.approx(edges.tolist())

    def test_uniform_bins_of_one_value_are_those_of_pandas(self) -> None:
        for value in (0, 5, -5):
            made = UniformKBinsDiscretizer(["x"], bins=2)
            expected = pd.cut([value], 2, labels=False).tolist()
            assert column(made.fit_transform(dataset(x=[value])), "x") == expected

    @pytest.mark.parametrize("right", [True, False])
    @pytest.mark.parametrize("include_lowest", [True, False])
    def test_given_bins_are_cut_as_pandas_cuts(self, right: bool, include_lowest: bool) -> None:
        edges = [0.2, 2.1, 6.2]
        made = CustomKBinsDiscretizer(["x"], bins=edges, right=right, include_lowest=include_lowest)
        expected = pd.cut(NUMBERS, edges, labels=False, right=right, include_lowest=include_lowest)
        found = column(made.transform(dataset(2, x=NUMBERS)), "x")
        assert found == [None if np.isnan(number) else number for number in expected]

    def test_bins_by_column(self) -> None:
        made = CustomKBinsDiscretizer(["x", "y"], bins={"x": [0, 1, 2], "y": [0, 9]})
        assert made.transform(dataset(x=[2], y=[2])).take_all() == [{"x": 1, "y": 0}]

    def test_intervals(self) -> None:
        bins = pd.IntervalIndex.from_breaks([0, 2, 5])
        found = CustomKBinsDiscretizer(["x"], bins=bins).transform(dataset(x=[1, 4, 7]))
        assert column(found, "x") == [0, 1, None]

    def test_bins_can_have_names(self) -> None:
        sizes = pd.CategoricalDtype(["small", "large"], ordered=True)
        made = UniformKBinsDiscretizer(["x"], bins=2, dtypes={"x": sizes}, output_columns=["size"])
        found = made.fit_transform(dataset(x=[1, 2, 9])).to_pandas()
        assert found["size"].dtype == sizes
        assert found["size"].tolist() == ["small", "small", "large"]

    def test_there_has_to_be_a_name_for_each_bin(self) -> None:
        made = CustomKBinsDiscretizer(["x"], bins=[0, 1, 2], dtypes={"x": pd.CategoricalDtype(["one"])})
        with pytest.raises(
            ValueError, match=r"'x' has 2 bins, and its type in dtypes 1 categories: \['one'\]"
        ):
            made.transform_batch(pd.DataFrame({"x": [1]}))

    def test_a_column_without_bins_is_named(self) -> None:
        with pytest.raises(ValueError, match="bins lacks 'y'"):
            UniformKBinsDiscretizer(["x", "y"], bins={"x": 2}).fit(dataset(x=[1], y=[1]))

    @pytest.mark.parametrize("bins", [0, "many", 2.5])
    def test_a_number_of_bins_is_a_positive_integer(self, bins: Any) -> None:
        with pytest.raises(TypeError, match="positive integer"):
            UniformKBinsDiscretizer(["x"], bins=bins).fit(dataset(x=[1]))

    def test_a_column_without_numbers_has_no_range(self) -> None:
        with pytest.raises(ValueError, match="the column 'x' has no numbers"):
            UniformKBinsDiscretizer(["x"], bins=2).fit(dataset(x=[np.nan]))
