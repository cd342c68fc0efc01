"""Scaling and filling columns of numbers."""

from __future__ import annotations

import decimal
import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import skate
from skate.data.preprocessor import SerializablePreprocessorBase
from skate.data.preprocessors import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PowerTransformer,
    RobustScaler,
    SimpleImputer,
    StandardScaler,
)
from tests.data.preprocessors.support import column, dataset

SCALERS = [StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler]


class TestScalers:
    def test_standard(self) -> None:
        made = StandardScaler(["x"])
        assert column(made.fit_transform(dataset(2, x=[1, 1, 5, 5])), "x") == [-1.0, -1.0, 1.0, 1.0]
        assert made.stats_ == {"mean(x)": 3.0, "std(x)": 2.0}

    def test_min_max(self) -> None:
        made = MinMaxScaler(["x"])
        assert column(made.fit_transform(dataset(2, x=[-1, 0, 3])), "x") == [0.0, 0.25, 1.0]
        assert made.stats_ == {"min(x)": -1, "max(x)": 3}

    def test_max_abs(self) -> None:
        made = MaxAbsScaler(["x"])
        assert column(made.fit_transform(dataset(2, x=[1, 0, -4])), "x") == [0.25, 0.0, -1.0]
        assert made.stats_ == {"abs_max(x)": 4}

    def test_robust(self) -> None:
        made = RobustScaler(["x"])
        assert column(made.fit_transform(dataset(2, x=[-10, 1, 2, 3, 10])), "x") == [-6, -0.5, 0, 0.5, 4]
        assert made.stats_ == {"low_quantile(x)": 1, "median(x)": 2, "high_quantile(x)": 3}

    def test_robust_with_other_quantiles(self) -> None:
        made = RobustScaler(["x"], quantile_range=(0.1, 0.9)).fit(dataset(x=list(range(11))))
        assert made.stats_ == {"low_quantile(x)": 1, "median(x)": 5, "high_quantile(x)": 9}

    @pytest.mark.parametrize("wrong", [(0.9, 0.1), (-0.1, 0.5), (0.5, 1.5)])
    def test_robust_refuses_quantiles_that_are_none(self, wrong: tuple[float, float]) -> None:
        with pytest.raises(ValueError, match="quantile_range"):
            RobustScaler(["x"], quantile_range=wrong)

    @pytest.mark.parametrize("cls", SCALERS)
    def test_nulls_stay_null(self, cls: Any) -> None:
        found = column(cls(["x"]).fit_transform(dataset(x=[1.0, None, 2.0, 3.0])), "x")
        assert [value is None for value in found] == [False, True, False, False]

    @pytest.mark.parametrize("cls", SCALERS)
    def test_a_column_without_values_becomes_null(self, cls: Any) -> None:
        empty = skate.data.from_arrow(pa.table({"x": pa.array([None, None], pa.float64())}))
        made = cls(["x"]).fit(empty)
        assert column(made.transform(dataset(x=[1.0])), "x") == [None]

    @pytest.mark.parametrize("cls", [StandardScaler, MinMaxScaler, RobustScaler])
    def test_a_constant_column_becomes_zero(self, cls: Any) -> None:
        assert column(cls(["x"]).fit_transform(dataset(x=[5, 5, 5])), "x") == [0.0, 0.0, 0.0]

    @pytest.mark.parametrize("cls", [StandardScaler, MinMaxScaler])
    def test_rounding_errors_are_not_stretched(self, cls: Any) -> None:
        found = column(cls(["x"]).fit_transform(dataset(x=[5.0, 5.0 + 1e-10, 5.0])), "x")
        assert found == pytest.approx([0, 0, 0], abs=1e-6)

    def test_a_column_of_zeros_stays_one(self) -> None:
        assert column(MaxAbsScaler(["x"]).fit_transform(dataset(x=[0, 0])), "x") == [0.0, 0.0]

    def test_single_precision_stays_single(self) -> None:
        table = pa.table({"x": pa.array([0, 2], pa.float32())})
        found = MinMaxScaler(["x"]).fit_transform(skate.data.from_arrow(table)).to_arrow()
        assert found.schema.field("x").type == pa.float32()

    def test_decimals_become_floats(self) -> None:
        table = pa.table({"x": [decimal.Decimal("1.5"), decimal.Decimal("3.0")]})
        assert column(MinMaxScaler(["x"]).fit_transform(skate.data.from_arrow(table)), "x") == [0.0, 1.0]

    @pytest.mark.parametrize("cls", SCALERS)
    def test_a_saved_one_does_the_same(self, cls: Any) -> None:
        made = cls(["x"], output_columns=["y"]).fit(dataset(x=[1, 2, 3, 4, 50]))
        loaded = SerializablePreprocessorBase.deserialize(made.serialize())
        assert repr(loaded) == repr(made)
        assert loaded.stats_ == made.stats_
        batch = pd.DataFrame({"x": [1.0, 7.0]})
        pd.testing.assert_frame_equal(loaded.transform_batch(batch), made.transform_batch(batch))


class TestNormalizer:
    @pytest.mark.parametrize(
        ("norm", "expected"), [("l2", [0.6, -0.8]), ("l1", [3 / 7, -4 / 7]), ("max", [0.75, -1.0])]
    )
    def test_norms(self, norm: str, expected: list[float]) -> None:
        found = Normalizer(["x", "y"], norm=norm).transform_batch(pd.DataFrame({"x": [3], "y": [-4]}))
        assert found.loc[0].tolist() == pytest.approx(expected)

    @pytest.mark.parametrize("norm", ["l1", "l2", "max"])
    def test_what_is_missing_is_no_part_of_the_vector(self, norm: str) -> None:
        ds = dataset(x=[3.0, None, 0.0], y=[None, None, 0.0])
        found = Normalizer(["x", "y"], norm=norm).transform(ds).take_all()
        assert found == [{"x": 1.0, "y": None}, {"x": None, "y": None}, {"x": None, "y": None}]

    def test_an_unknown_norm_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="'l1', 'l2', 'max', got 'l3'"):
            Normalizer(["x"], norm="l3")


class TestPowerTransformer:
    @pytest.mark.parametrize(
        ("power", "expected"),
        [(0, [-1.5, 0.0, math.log(2)]), (2, [-math.log(2), 0.0, 1.5]), (1, [-1.0, 0.0, 1.0])],
    )
    def test_yeo_johnson(self, power: float, expected: list[float]) -> None:
        found = PowerTransformer(["x"], power=power).transform(dataset(x=[-1, 0, 1]))
        assert column(found, "x") == pytest.approx(expected)

    @pytest.mark.parametrize(("power", "expected"), [(0, [0.0, math.log(2)]), (2, [0.0, 1.5])])
    def test_box_cox(self, power: float, expected: list[float]) -> None:
        found = PowerTransformer(["x"], power=power, method="box-cox").transform(dataset(x=[1, 2]))
        assert column(found, "x") == pytest.approx(expected)

    def test_box_cox_of_what_has_no_such_power_is_null(self) -> None:
        found = PowerTransformer(["x"], power=0.5, method="box-cox").transform(dataset(x=[-1.0, None]))
        assert column(found, "x") == [None, None]

    def test_an_unknown_method_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="'yeo-johnson', 'box-cox', got 'cube'"):
            PowerTransformer(["x"], power=3, method="cube")


class TestSimpleImputer:
    def test_by_the_mean(self) -> None:
        made = SimpleImputer(["x"])
        assert column(made.fit_transform(dataset(2, x=[1.0, None, 3.0])), "x") == [1.0, 2.0, 3.0]
        assert made.stats_ == {"mean(x)": 2.0}

    def test_nan_is_missing_too(self) -> None:
        ds = skate.data.from_numpy(np.array([1.0, np.nan, 3.0]))
        assert column(SimpleImputer(["data"]).fit_transform(ds), "data") == [1.0, 2.0, 3.0]

    def test_integers_become_floats_for_the_mean_whether_one_is_missing_or_not(self) -> None:
        table = pa.table({"x": [1, None, 2], "y": [1, 2, 3]})
        found = SimpleImputer(["x", "y"]).fit_transform(skate.data.from_arrow(table)).to_arrow()
        assert found.schema.types == [pa.float64()] * 2
        assert found["x"].to_pylist() == [1.0, 1.5, 2.0]

    def test_by_the_most_frequent_value(self) -> None:
        made = SimpleImputer(["x", "s"], strategy="most_frequent")
        ds = dataset(3, x=[1, 2, 2, None, None, None], s=[None, "c", "c", "c", "b", "a"])
        found = made.fit_transform(ds)
        assert made.stats_ == {"most_frequent(x)": 2.0, "most_frequent(s)": "c"}
        assert column(found, "x") == [1, 2, 2, 2, 2, 2]
        assert column(found, "s") == ["c", "c", "c", "c", "b", "a"]

    def test_by_a_constant_without_fitting(self) -> None:
        made = SimpleImputer(["s"], strategy="constant", fill_value="?")
        assert column(made.transform(dataset(s=["a", None])), "s") == ["a", "?"]

    def test_the_value_need_not_be_a_category(self) -> None:
        made = SimpleImputer(["s"], strategy="constant", fill_value="new")
        found = made.transform_batch(pd.DataFrame({"s": pd.Categorical(["a", None])}))
        assert found["s"].tolist() == ["a", "new"]
        assert isinstance(found["s"].dtype, pd.CategoricalDtype)

    def test_a_column_that_is_not_there_is_added(self) -> None:
        made = SimpleImputer(["x"]).fit(dataset(x=[1.0, 3.0]))
        found = made.transform_batch(pd.DataFrame({"y": [0, 0]}))
        assert found.to_dict("list") == {"y": [0, 0], "x": [2.0, 2.0]}

    def test_a_column_of_nulls_takes_the_type_of_the_value(self) -> None:
        made = SimpleImputer(["x"], strategy="constant", fill_value=7)
        assert made.transform_batch(pd.DataFrame({"x": [None, None]}))["x"].tolist() == [7, 7]

    @pytest.mark.parametrize("strategy", ["mean", "most_frequent"])
    def test_without_any_value_there_is_nothing_to_fill_in(self, strategy: str) -> None:
        made = SimpleImputer(["x"], strategy=strategy).fit(dataset(x=[np.nan, np.nan]))
        with pytest.raises(ValueError, match="cannot fill the column 'x'"):
            made.transform_batch(pd.DataFrame({"x": [np.nan]}))

    def test_text_in_a_column_of_numbers_is_an_error(self) -> None:
        made = SimpleImputer(["x"], strategy="constant", fill_value="?")
        with pytest.raises(TypeError, match=r"the column 'x', which is of type double, with '\?'"):
            made.transform_batch(pd.DataFrame({"x": [1.0, None]}))

    def test_a_constant_has_to_be_given(self) -> None:
        with pytest.raises(ValueError, match="fill_value"):
            SimpleImputer(["x"], strategy="constant")

    def test_an_unknown_strategy_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="got 'median'"):
            SimpleImputer(["x"], strategy="median")

    def test_a_saved_constant_needs_no_fitting_either(self) -> None:
        made = SimpleImputer(["x"], strategy="constant", fill_value=0)
        loaded = SimpleImputer.deserialize(made.serialize())
        assert loaded.fit_status() == "NOT_FITTABLE"
        assert loaded.transform_batch(pd.DataFrame({"x": [None, 1.0]}))["x"].tolist() == [0.0, 1.0]
