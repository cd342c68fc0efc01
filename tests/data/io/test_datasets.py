"""Datasets of other libraries: torch and Hugging Face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from skate.data._io.huggingface import HuggingFaceDatasource
from skate.data._io.torch_datasets import TorchDatasource
from tests.data.io.support import read, read_rows

datasets = pytest.importorskip("datasets")


class Squares(torch.utils.data.Dataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < self.length
        return index**2


class Counted(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([torch.full((2,), number) for number in range(100)])


def test_an_indexed_dataset_is_cut_by_its_indices() -> None:
    source = TorchDatasource(Squares(10))
    assert source.num_rows() == 10
    assert [task.metadata.num_rows for task in source.get_read_tasks(3)] == [4, 4, 2]
    assert read_rows(source, parallelism=3) == [{"item": n**2} for n in range(10)]


def test_an_iterated_dataset_is_read_by_one_task() -> None:
    source = TorchDatasource(Counted(), local_read=True)
    assert not source.supports_distributed_reads
    (task,) = source.get_read_tasks(5)
    assert sum(block.num_rows for block in task()) == 100
    np.testing.assert_array_equal(read_rows(source)[7]["item"], [7, 7])


@pytest.fixture
def table() -> pa.Table:
    return pa.table({"n": range(100), "s": [f"text {n}" for n in range(100)]})


def test_a_dataset_of_hugging_face_in_memory_is_read(table: pa.Table) -> None:
    source = HuggingFaceDatasource(datasets.Dataset(table))
    assert source.num_rows() == 100
    assert source.schema() == table.schema
    assert read(source, parallelism=3).equals(table)


@pytest.mark.usefixtures("client_libraries")
def test_a_dataset_of_hugging_face_in_files_travels_as_their_names(tmp_path: Path, table: pa.Table) -> None:
    import cloudpickle

    wide = table.append_column("x", pa.array(["y" * 10_000] * 100))
    datasets.Dataset(wide).save_to_disk(str(tmp_path))
    source = HuggingFaceDatasource(datasets.load_from_disk(str(tmp_path)))
    (task,) = source.get_read_tasks(1)
    assert len(cloudpickle.dumps(task)) < 100_000
    assert read(source, parallelism=3).equals(wide)


def test_chosen_and_sorted_rows_are_read_in_their_order(table: pa.Table) -> None:
    dataset = datasets.Dataset(table).select([5, 3, 99])
    assert read(HuggingFaceDatasource(dataset))["n"].to_pylist() == [5, 3, 99]


def test_an_iterable_dataset_is_read_shard_by_shard(table: pa.Table) -> None:
    source = HuggingFaceDatasource(datasets.Dataset(table).to_iterable_dataset(num_shards=4))
    assert source.num_rows() is None
    assert len(source.get_read_tasks(8)) == 4
    assert read(source, parallelism=8)["n"].to_pylist() == list(range(100))


def test_a_dict_of_splits_is_an_error_that_says_what_to_do(table: pa.Table) -> None:
    both = datasets.DatasetDict({"test": datasets.Dataset(table)})
    with pytest.raises(ValueError, match=r"dataset\['test'\]"):
        HuggingFaceDatasource(both)


def test_something_else_is_an_error_that_says_its_type() -> None:
    with pytest.raises(TypeError, match=r"list"):
        HuggingFaceDatasource([])
