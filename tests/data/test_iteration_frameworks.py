"""Batches as the datasets and arrays of other frameworks."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch

import skate

pytestmark = pytest.mark.frameworks


# Ray deprecates `to_torch`; a test of its own expects the warning.
allows_deprecated = pytest.mark.filterwarnings("ignore:to_torch is deprecated")


@pytest.fixture
def points() -> Any:
    return skate.data.from_items([{"a": i, "b": float(2 * i), "label": i % 2} for i in range(6)])


@allows_deprecated
def test_features_lie_side_by_side_and_the_label_by_itself(points: Any) -> None:
    features, label = next(iter(points.to_torch(label_column="label", batch_size=4)))
    assert torch.equal(features, torch.tensor([[0.0, 0], [1, 2], [2, 4], [3, 6]]))
    assert torch.equal(label, torch.tensor([[0], [1], [0], [1]]))


@allows_deprecated
def test_features_can_be_several_tensors_of_given_types(points: Any) -> None:
    chosen = {"first": ["a"], "both": ["a", "b"]}
    dtypes = {"first": torch.int32, "both": torch.float64}
    made = points.to_torch(feature_columns=chosen, feature_column_dtypes=dtypes, batch_size=6)
    features, label = next(iter(made))
    assert label is None
    assert (features["first"].shape, features["first"].dtype) == ((6, 1), torch.int32)
    assert (features["both"].shape, features["both"].dtype) == ((6, 2), torch.float64)
    listed, _ = next(iter(points.iterator().to_torch(feature_columns=[["a"], ["b"]], batch_size=2)))
    assert [each.shape for each in listed] == [(2, 1), (2, 1)]


@allows_deprecated
def test_a_dataset_of_torch_can_be_iterated_over_again(points: Any) -> None:
    made = points.to_torch(label_column="label", batch_size=2, unsqueeze_label_tensor=False)
    assert isinstance(made, torch.utils.data.IterableDataset)
    for _ in range(2):
        assert [label.tolist() for _, label in made] == [[0, 1]] * 3


@allows_deprecated
def test_tensors_get_a_second_dimension_too_before_they_are_concatenated() -> None:
    rows = skate.data.from_items([{"a": [1, 2], "b": [3, 4]}, {"a": [5, 6], "b": [7, 8]}])
    features, label = next(iter(rows.to_torch(label_column="b", batch_size=2)))
    assert features.tolist() == [[[1, 2]], [[5, 6]]]
    assert label.shape == (2, 1, 2)
    both, _ = next(iter(rows.to_torch(batch_size=2)))
    assert both.tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    flat, _ = next(iter(rows.to_torch(batch_size=2, unsqueeze_feature_tensors=False)))
    assert flat.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_to_torch_warns_of_its_deprecation_at_the_call(points: Any) -> None:
    with pytest.warns(DeprecationWarning, match="use iter_torch_batches") as caught:
        points.to_torch()
    assert caught[0].filename == __file__


@allows_deprecated
def test_a_list_without_columns_is_refused(points: Any) -> None:
    with pytest.raises(ValueError, match="one of the lists is empty"):
        list(points.to_torch(feature_columns=[["a"], []]))


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("tensorflow", lambda ds: ds.to_tf("a", "label")),
        ("tensorflow", lambda ds: ds.iter_tf_batches()),
        ("jax", lambda ds: ds.iter_jax_batches()),
    ],
)
def test_a_framework_that_is_not_installed_is_named(points: Any, module: str, call: Any) -> None:
    if importlib.util.find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    with pytest.raises(ImportError, match=f"needs {module}: pip install {module}"):
        call(points)


def test_batches_as_arrays_of_jax(points: Any) -> None:
    pytest.importorskip("jax")
    batches = list(points.iter_jax_batches(batch_size=4, dtypes={"b": np.float32}, paddings=0))
    assert [batch["a"].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 0, 0]]
    assert batches[0]["b"].dtype == np.float32


def test_batches_as_a_dataset_of_tensorflow(points: Any) -> None:
    pytest.importorskip("tensorflow")
    made = points.to_tf(["a", "b"], "label", batch_size=4)
    features, label = next(iter(made))
    assert features["a"].numpy().tolist() == [0, 1, 2, 3]
    assert label.numpy().tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="'c'"):
        points.to_tf("c", "label")


def test_ragged_tensors_stay_ragged_in_batches_of_one_shape() -> None:
    tensorflow = pytest.importorskip("tensorflow")
    rows = [{"x": np.ones(size), "y": size} for size in (2, 2, 3)]
    made = skate.data.from_items(rows, override_num_blocks=3).to_tf("x", "y", batch_size=2)
    features = [each for each, _ in made]
    assert all(isinstance(each, tensorflow.RaggedTensor) for each in features)
    assert [each.to_list() for each in features] == [[[1.0, 1.0], [1.0, 1.0]], [[1.0, 1.0, 1.0]]]
