"""Conversions to torch tensors outside of iteration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import skate
from skate.data.collate_fn import ArrowBatchCollateFn
from skate.data.util.torch_utils import (
    arrow_batch_to_tensors,
    concat_tensors_to_device,
    convert_ndarray_batch_to_torch_tensor_batch,
    convert_table_to_torch_tensor,
    move_tensors_to_device,
    pin_tensors_to_memory,
)

TABLE = pa.table({"a": pa.chunked_array([[1, 2], [3]]), "b": pa.chunked_array([[4.0], [5.0, 6.0]])})


def test_columns_of_a_table_become_one_tensor_or_several() -> None:
    whole = convert_table_to_torch_tensor(TABLE)
    assert whole.tolist() == [[1, 4], [2, 5], [3, 6]]
    first, second = convert_table_to_torch_tensor(TABLE, [["a"], ["b"]], [torch.int8, torch.float16])
    assert (first.dtype, second.dtype, first.shape) == (torch.int8, torch.float16, (3, 1))
    assert convert_table_to_torch_tensor(TABLE, ["a"], unsqueeze=False).tolist() == [1, 2, 3]
    with pytest.raises(TypeError, match="single column_dtypes"):
        convert_table_to_torch_tensor(TABLE, ["a", "b"], [torch.float, torch.float])


@pytest.mark.parametrize("threads", [None, 2])
def test_columns_of_an_arrow_batch_become_tensors_or_chunks(threads: int | None) -> None:
    pool = None if threads is None else ThreadPoolExecutor(threads)
    combined = arrow_batch_to_tensors(TABLE, {"a": torch.int32}, combine_chunks=True, threadpool=pool)
    assert combined["a"].dtype == torch.int32
    assert combined["b"].tolist() == [4, 5, 6]
    chunked = arrow_batch_to_tensors(TABLE, threadpool=pool)
    assert [each.tolist() for each in chunked["b"]] == [[4], [5, 6]]
    if pool is not None:
        pool.shutdown()


def test_arrays_become_tensors_of_given_types() -> None:
    made = convert_ndarray_batch_to_torch_tensor_batch({"a": np.arange(2)}, {"a": torch.float}, "cpu")
    assert made["a"].dtype == torch.float
    assert convert_ndarray_batch_to_torch_tensor_batch(np.arange(2), {"a": torch.int8}).dtype == torch.int8
    with pytest.raises(ValueError, match="single dtype"):
        convert_ndarray_batch_to_torch_tensor_batch(np.arange(2), {"a": torch.int8, "b": torch.int8})


@pytest.mark.parametrize("kind", [list, tuple])
def test_chunks_are_concatenated_on_the_device(kind: Any) -> None:
    one, two = torch.ones(1), torch.ones(2)
    assert move_tensors_to_device(kind([one, two]), "cpu") == kind([one, two])
    joined, alone = move_tensors_to_device([kind([one, two]), kind([one])], "cpu")
    assert (joined.shape, alone.shape) == ((3,), (1,))
    assert move_tensors_to_device({"a": kind([one, two])}, "meta")["a"].device.type == "meta"
    assert move_tensors_to_device({"a": kind([one, two])}, "cpu", concat=False) == {"a": kind([one, two])}
    assert concat_tensors_to_device([one]) is one
    assert move_tensors_to_device(one, None) is one


@pytest.mark.parametrize("batch", ["text", [1, [2]], [torch.ones(1), [torch.ones(1)]], {"a": 1}])
def test_other_structures_are_refused(batch: Any) -> None:
    with pytest.raises(ValueError, match=f"Invalid input type: {type(batch).__name__}"):
        move_tensors_to_device(batch, "cpu")
    with pytest.raises(ValueError, match="needs tensors"):
        concat_tensors_to_device([])


def test_only_tensors_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = torch.zeros(1)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda _: pinned)
    array = np.ones(1)
    made = pin_tensors_to_memory({"a": [torch.ones(1)], "b": array})
    assert made["a"][0] is pinned
    assert made["b"] is array


def test_iteration_concatenates_the_chunks_that_a_collate_fn_returns() -> None:
    class Chunks(ArrowBatchCollateFn):
        def __call__(self, batch: pa.Table) -> Any:
            return {"id": [torch.tensor([1]), torch.tensor([2, 3])]}

    class Ragged(ArrowBatchCollateFn):
        def __call__(self, batch: pa.Table) -> Any:
            return {"id": [torch.ones(1, 2), torch.ones(1, 3)]}

    [batch] = skate.data.range(1).iter_torch_batches(collate_fn=Chunks())
    assert batch["id"].tolist() == [1, 2, 3]
    [batch] = skate.data.range(1).iter_torch_batches(collate_fn=Ragged())
    assert [each.shape for each in batch["id"]] == [(1, 2), (1, 3)]
