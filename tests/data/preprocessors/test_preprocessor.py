"""Common behaviour of preprocessors: fitting, transforming and errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import skate
from skate.data import Dataset
from skate.data.aggregate import Max, Mean, Sum
from skate.data.preprocessor import Preprocessor, PreprocessorNotFittedException
from skate.data.preprocessors import MinMaxScaler, Normalizer, OneHotEncoder, StandardScaler
from skate.data.util.data_batch_conversion import BatchFormat
from tests.data.preprocessors.support import column, dataset

Status = Preprocessor.FitStatus


class Centered(Preprocessor):
    """Subtracts the mean of a column, which it asks for in a plan."""

    def _fit(self, ds: Dataset) -> Preprocessor:
        self.stat_computation_plan.add_aggregator(aggregator_fn=Mean, columns=["x"])
        return self

    def _transform_numpy(self, np_data: Any) -> Any:
        return {"x": np_data["x"] - self.stats_["mean(x)"]}


class Untransforming(Preprocessor):
    _is_fittable = False


class InPandas(Untransforming):
    def _transform_pandas(self, df: Any) -> Any:
        return df.assign(kind="pandas")


class InNumpy(Untransforming):
    def _transform_numpy(self, np_data: Any) -> Any:
        return {**np_data, "kind": np.array(["numpy"] * 2)} if isinstance(np_data, dict) else np_data * 2


class InArrow(Untransforming):
    def _transform_arrow(self, table: pa.Table) -> pa.Table:
        return table.append_column("kind", pa.array(["arrow"] * table.num_rows))


class InTwo(InPandas, InNumpy):
    pass


class InTwoButNumpyFirst(InTwo):
    @classmethod
    def preferred_batch_format(cls) -> BatchFormat:
        return BatchFormat.NUMPY


@pytest.mark.usefixtures("where")
class TestOnEveryEngine:
    def test_it_is_fitted_to_all_blocks(self) -> None:
        ds = dataset(3, x=[1.0, 2.0, 3.0, 6.0])
        assert column(Centered().fit_transform(ds), "x") == [-2.0, -1.0, 0.0, 3.0]

    def test_columns_are_scaled_and_encoded(self) -> None:
        ds = dataset(2, x=[0, 5, 10], kind=["b", "a", "b"])
        scaled = MinMaxScaler(["x"]).fit_transform(ds)
        assert OneHotEncoder(["kind"]).fit_transform(scaled).take_all() == [
            {"x": 0.0, "kind": [0, 1]},
            {"x": 0.5, "kind": [1, 0]},
            {"x": 1.0, "kind": [0, 1]},
        ]

    @pytest.mark.starts_session
    def test_resources_reach_the_tasks(self) -> None:
        class Asking(InNumpy):
            def _transform_numpy(self, np_data: Any) -> Any:
                resources = skate.get_runtime_context().get_assigned_resources()
                return {"cpus": np.array([resources["CPU"]])}

        assert column(Asking().transform(dataset(x=[1]), num_cpus=0.5), "cpus") == [0.5]


class TestFitting:
    def test_a_new_preprocessor_is_not_fitted(self) -> None:
        assert Centered().fit_status() is Status.NOT_FITTED

    def test_fit_returns_the_preprocessor_itself(self) -> None:
        made = Centered()
        assert made.fit(dataset(x=[1.0])) is made
        assert made.fit_status() is Status.FITTED

    def test_one_that_needs_no_statistics_leaves_the_dataset_alone(self) -> None:
        def fail(row: Any) -> Any:
            raise AssertionError("the dataset is run")

        made = Normalizer(["x"])
        assert made.fit(dataset(x=[1.0]).map(fail)) is made
        assert made.fit_status() is Status.NOT_FITTABLE

    def test_statistics_that_a_user_sets_count_as_fitted(self) -> None:
        made = Centered()
        made.stats_ = {"mean(x)": 1.0}
        assert made.fit_status() is Status.FITTED
        assert made.transform_batch({"x": np.array([3.0])})["x"].tolist() == [2.0]

    def test_an_attribute_of_the_users_that_ends_with_an_underscore_counts_as_well(self) -> None:
        class Own(Preprocessor):
            largest_: np.ndarray[Any, Any]

        made = Own()
        made.largest_ = np.zeros(3)
        assert made.fit_status() is Status.FITTED

    def test_fitting_without_any_statistics_counts(self) -> None:
        class Own(Preprocessor):
            def _fit(self, ds: Dataset) -> Preprocessor:
                return self

        assert Own().fit(dataset(x=[1])).fit_status() is Status.FITTED

    def test_fitting_again_warns_and_starts_anew(self) -> None:
        class Largest(Preprocessor):
            def _fit(self, ds: Dataset) -> Preprocessor:
                self.stat_computation_plan.add_aggregator(aggregator_fn=Max, columns=ds.columns() or [])
                return self

        made = Largest().fit(dataset(a=[1], b=[2]))
        with pytest.warns(UserWarning, match="was already fitted"):
            made.fit(dataset(b=[3], c=[4]))
        assert made.stats_ == {"max(b)": 3, "max(c)": 4}

    def test_all_statistics_are_computed_in_one_pass_over_the_columns_they_need(self) -> None:
        calls: list[list[str]] = []

        def seen(batch: dict[str, Any]) -> dict[str, Any]:
            calls.append(sorted(batch))
            return batch

        ds = dataset(a=[1, 2], b=[3, 5], c=["x", "y"]).map_batches(seen)
        made = StandardScaler(["a", "b"]).fit(ds)
        assert calls == [["a", "b", "c"]]
        assert made.stats_ == {"mean(a)": 1.5, "mean(b)": 4.0, "std(a)": 0.5, "std(b)": 1.0}

    def test_what_a_statistic_becomes_can_be_said(self) -> None:
        class Doubled(Preprocessor):
            def _fit(self, ds: Dataset) -> Preprocessor:
                self.stat_computation_plan.add_aggregator(
                    aggregator_fn=Sum, post_process_fn=lambda total: 2 * total, columns=["x"]
                )
                return self

        assert Doubled().fit(dataset(x=[1, 2])).stats_ == {"sum(x)": 6}

    def test_a_failed_fit_leaves_it_unfitted(self) -> None:
        made = StandardScaler(["x"])
        with pytest.raises(ValueError, match="nope"):
            made.fit(dataset(nope=[1]).rename_columns({"nope": "y"}).map_batches(_failing))
        assert made.fit_status() is Status.NOT_FITTED

    def test_a_class_without_fit_says_what_to_do(self) -> None:
        class Forgotten(Preprocessor):
            pass

        with pytest.raises(NotImplementedError, match=r"Forgotten .* define _fit"):
            Forgotten().fit(dataset(x=[1]))


def _failing(batch: Any) -> Any:
    raise ValueError("nope")


class TestTransforming:
    @pytest.mark.parametrize("method", ["transform", "transform_batch"])
    def test_before_it_is_fitted_is_an_error(self, method: str) -> None:
        data: Any = dataset(x=[1]) if method == "transform" else pd.DataFrame({"x": [1]})
        with pytest.raises(
            PreprocessorNotFittedException, match=rf"StandardScaler.* fitted before {method}:"
        ):
            getattr(StandardScaler(["x"]), method)(data)

    def test_nothing_runs_before_rows_are_wanted(self) -> None:
        transformed = Normalizer(["x"]).transform(dataset(x=[1.0]).map_batches(_failing))
        with pytest.raises(ValueError, match="nope"):
            transformed.take_all()

    def test_the_name_of_the_class_is_shown_in_the_plan(self, capsys: pytest.CaptureFixture[str]) -> None:
        Normalizer(["x"]).transform(dataset(x=[1.0])).explain()
        assert "MapBatches(Normalizer)" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("made", "expected"),
        [
            (InPandas(), "pandas"),
            (InNumpy(), "numpy"),
            (InArrow(), "arrow"),
            (InTwo(), "pandas"),
            (InTwoButNumpyFirst(), "numpy"),
        ],
    )
    def test_a_class_gets_batches_in_the_format_that_it_takes(
        self, made: Preprocessor, expected: str
    ) -> None:
        assert column(made.transform(dataset(x=[1, 2])), "kind") == [expected] * 2

    def test_a_class_that_transforms_nothing_says_what_to_do(self) -> None:
        for use in (
            lambda: Untransforming().transform(dataset(x=[1])),
            lambda: Untransforming().transform_batch(pd.DataFrame({"x": [1]})),
        ):
            with pytest.raises(NotImplementedError, match="define _transform_pandas"):
                use()

    def test_options_reach_the_tasks(self) -> None:
        class Sized(InNumpy):
            def _get_transform_config(self) -> dict[str, Any]:
                return {"batch_size": 2}

            def _transform_numpy(self, np_data: Any) -> Any:
                return {"rows": np.array([len(np_data["x"])])}

        ds = dataset(x=list(range(5)))
        assert column(Sized().transform(ds), "rows") == [2, 2, 1]
        assert column(Sized().transform(ds, batch_size=5), "rows") == [5]


class TestBatches:
    @pytest.mark.parametrize(
        ("made", "expected"), [(InPandas(), pd.DataFrame), (InNumpy(), dict), (InArrow(), pa.Table)]
    )
    @pytest.mark.parametrize(
        "batch",
        [pa.table({"x": [1, 2]}), {"x": np.array([1, 2])}],
        ids=lambda batch: type(batch).__name__,
    )
    def test_come_back_in_the_format_of_the_class(
        self, made: Preprocessor, expected: type, batch: Any
    ) -> None:
        found = made.transform_batch(batch)
        assert type(found) is expected
        assert list(found["x"]) == [1, 2] or found["x"].to_pylist() == [1, 2]

    def test_a_frame_stays_one_where_the_class_takes_tables(self) -> None:
        found = InArrow().transform_batch(pd.DataFrame({"x": [1]}))
        assert found.to_dict("list") == {"x": [1], "kind": ["arrow"]}

    def test_an_array_is_given_as_it_is_or_as_one_column(self) -> None:
        assert InNumpy().transform_batch(np.array([1, 2])).tolist() == [2, 4]
        assert list(InPandas().transform_batch(np.zeros((2, 3))).columns) == ["__value__", "kind"]

    @pytest.mark.parametrize("batch", [[1, 2], "text", None])
    def test_anything_else_is_an_error(self, batch: Any) -> None:
        with pytest.raises(ValueError, match=f"got {type(batch).__name__}"):
            InPandas().transform_batch(batch)

    def test_of_a_frame_other_columns_and_the_index_stay_what_they_are(self) -> None:
        frame = pd.DataFrame({"x": [3.0, 4.0], "o": [object(), None], "c": pd.Categorical(["a", "b"])})
        frame.index = pd.Index([7, 9])
        found = Normalizer(["x"]).transform_batch(frame)
        assert found["x"].tolist() == [1.0, 1.0]
        assert found.index.tolist() == [7, 9]
        pd.testing.assert_frame_equal(found[["o", "c"]], frame[["o", "c"]])
        assert frame["x"].tolist() == [3.0, 4.0], "the batch that was given is changed"


class TestColumns:
    def test_are_known_without_data(self) -> None:
        made = StandardScaler(["a", "b"], output_columns=["c", "d"])
        assert made.get_input_columns() == ["a", "b"]
        assert made.get_output_columns() == ["c", "d"]
        assert Centered().get_input_columns() == Centered().get_output_columns() == []

    def test_outputs_are_the_inputs_if_not_given(self) -> None:
        assert StandardScaler(["a"]).get_output_columns() == ["a"]

    def test_there_have_to_be_as_many_outputs_as_inputs(self) -> None:
        with pytest.raises(ValueError, match=r"must match: .* and output_columns is \['c'\]"):
            StandardScaler(["a", "b"], output_columns=["c"])

    def test_all_are_read_before_one_is_written(self) -> None:
        ds = dataset(a=[0, 2], b=[0, 4])
        found = MinMaxScaler(["a", "b"], output_columns=["b", "c"]).fit_transform(ds)
        assert found.take_all() == [{"a": 0, "b": 0.0, "c": 0.0}, {"a": 2, "b": 1.0, "c": 1.0}]

    def test_a_missing_one_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"Normalizer\(.*\) needs the column 'z'"):
            Normalizer(["x", "z"]).transform_batch(pd.DataFrame({"x": [1]}))

    def test_one_of_the_wrong_type_is_named(self) -> None:
        with pytest.raises(TypeError, match="Normalizer needs numbers, and the column 'x' is of type string"):
            Normalizer(["x"]).transform_batch(pd.DataFrame({"x": ["a"]}))

    def test_options_cannot_be_changed_afterwards(self) -> None:
        with pytest.raises(AttributeError, match=r"create another one with norm='l1'"):
            Normalizer(["x"]).norm = "l1"


def test_a_preprocessor_of_the_users_can_be_saved_and_loaded() -> None:
    made = Centered().fit(dataset(x=[1.0, 3.0]))
    for copy in (Preprocessor.deserialize(made.serialize()), pickle.loads(pickle.dumps(made))):
        assert copy.transform_batch({"x": np.array([2.0])})["x"].tolist() == [0.0]
