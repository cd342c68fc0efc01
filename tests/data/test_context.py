"""Settings of datasets."""

from __future__ import annotations

import pickle
import warnings

import pytest

import skate
from skate.data import DataContext, ExecutionOptions, ExecutionResources
from skate.data.context import TRANSIENT_IO_ERRORS, ShuffleStrategy
from skate.data.extensions import FixedShapeTensorFormat
from skate.util.annotations import RayDeprecationWarning


@pytest.mark.parametrize(
    "name",
    [
        "write_file_retry_on_errors",
        "scheduling_strategy",
        "scheduling_strategy_large_args",
        "large_args_threshold",
    ],
)
def test_setting_what_ray_deprecates_warns(name: str) -> None:
    context = DataContext()
    value = getattr(context, name)
    with pytest.warns(RayDeprecationWarning, match=rf"DataContext\.{name} is deprecated in Ray"):
        setattr(context, name, value)


@pytest.mark.parametrize("name", ["exclude_resources", "actor_locality_enabled"])
def test_setting_options_that_ray_deprecates_warns(name: str) -> None:
    options = ExecutionOptions()
    with pytest.warns(RayDeprecationWarning, match=rf"ExecutionOptions\.{name}"):
        setattr(options, name, None)
    assert options.exclude_resources == ExecutionResources.zero()


def test_the_format_of_tensors_names_their_type() -> None:
    context = DataContext()
    column = skate.data.range_tensor(2, shape=(2, 2)).schema().types[0]
    for name in FixedShapeTensorFormat:
        context.arrow_fixed_shape_tensor_format = name
        made = context.arrow_fixed_shape_tensor_format.to_type()
        assert isinstance(column, made)
    assert DataContext().arrow_fixed_shape_tensor_format is FixedShapeTensorFormat.V2


def test_copies_do_not_warn_and_are_equal() -> None:
    context = DataContext()
    context.set_config("key", 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert context.copy() == context
        assert pickle.loads(pickle.dumps(context)) == context


def test_errors_that_are_tried_again_can_be_seen_and_changed() -> None:
    context = DataContext()
    assert context.retried_io_errors == list(TRANSIENT_IO_ERRORS)
    context.retried_io_errors.append("mine")
    assert "mine" not in DataContext().retried_io_errors


def test_an_older_name_of_a_strategy_is_known() -> None:
    assert ShuffleStrategy.HASH_SHUFFLE_V2 is ShuffleStrategy.SHUFFLE_V2
    with pytest.warns(DeprecationWarning, match=r"hash_shuffle_v2"):
        assert ShuffleStrategy("hash_shuffle_v2") is ShuffleStrategy.SHUFFLE_V2
    with pytest.raises(ValueError, match=r"'sort' is not a valid ShuffleStrategy"):
        ShuffleStrategy("sort")
