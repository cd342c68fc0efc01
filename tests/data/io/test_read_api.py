"""Arguments that all reading functions share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data.block import BlockMetadata
from skate.data.datasource import (
    BaseFileMetadataProvider,
    Datasource,
    DefaultFileMetadataProvider,
    FileMetadataProvider,
    Reader,
    ReadTask,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate("abc"):
        pq.write_table(pa.table({"n": [number], "name": [name]}), tmp_path / f"{name}.parquet")
    return tmp_path


def numbers(dataset: Any) -> list[int]:
    return sorted(row["n"] for row in dataset.take_all())


def test_files_can_be_skipped_whether_they_are_there_or_not(folder: Path) -> None:
    read = skate.data.read_parquet
    assert numbers(read(folder, skip_paths=str(folder / "a.parquet"))) == [1, 2]
    assert numbers(read(folder, skip_paths=[folder / "a.parquet", folder / "c.parquet"])) == [1]
    gone = str(folder / "gone.parquet")
    assert numbers(read([str(folder), gone], skip_paths=[gone])) == [0, 1, 2]
    assert numbers(read(str(folder), skip_paths=[])) == [0, 1, 2]


def test_columns_and_dataset_kwargs_work_and_warn_as_in_ray(folder: Path) -> None:
    with pytest.warns(
        DeprecationWarning, match=r"`columns=` on `read_parquet` is deprecated in Ray"
    ) as warned:
        found = skate.data.read_parquet(str(folder), columns=["n"])
    assert warned[0].filename == __file__
    assert found.columns() == ["n"]
    with pytest.warns(DeprecationWarning, match=r"`dataset_kwargs` on `read_parquet`"):
        found = skate.data.read_parquet(str(folder), dataset_kwargs={"buffer_size": 1 << 20})
    assert numbers(found) == [0, 1, 2]


def test_rows_without_columns_are_counted(folder: Path) -> None:
    nothing = skate.data.read_parquet(str(folder)).select_columns([])
    assert nothing.count() == 3
    assert nothing.columns() == []
    assert nothing.take_all() == [{}, {}, {}]
    assert skate.data.from_items([]).schema() is None


def test_a_provider_of_metadata_lists_the_files(folder: Path) -> None:
    class Newest(BaseFileMetadataProvider):
        def expand_paths(
            self,
            paths: list[str],
            filesystem: Any,
            partitioning: Any = None,
            ignore_missing_paths: bool = False,
        ) -> Iterator[tuple[str, int | None]]:
            assert paths == [str(folder)]
            yield f"{paths[0]}/c.parquet", None
            yield f"{paths[0]}/notes.txt", 3

    assert numbers(skate.data.read_parquet(str(folder), meta_provider=Newest())) == [2]
    usual = skate.data.read_parquet(str(folder), meta_provider=DefaultFileMetadataProvider())
    assert numbers(usual) == [0, 1, 2]


def test_a_provider_says_what_it_lacks() -> None:
    with pytest.raises(NotImplementedError, match=r"_get_block_metadata"):
        FileMetadataProvider()(["a.csv"])
    with pytest.raises(NotImplementedError, match=r"expand_paths"):
        BaseFileMetadataProvider().expand_paths(["a.csv"], None)
    metadata = DefaultFileMetadataProvider()(["a.csv", "b.csv"], rows_per_file=2, file_sizes=[1, None])
    assert (metadata.num_rows, metadata.size_bytes) == (4, None)


def _ones(n: int) -> ReadTask:
    return ReadTask(lambda: [pa.table({"n": [1] * n})], BlockMetadata(n, 8 * n))


def test_sources_of_the_older_shape_are_read_with_their_arguments() -> None:
    class Preparing(Datasource):
        def estimate_inmemory_data_size(self) -> int:
            return 48

        def prepare_read(self, parallelism: int, n: int) -> list[ReadTask]:
            return [_ones(n)] * parallelism

    class Creating(Datasource):
        def create_reader(self, n: int) -> Reader:
            return Bound(n)

    class Bound(Reader):
        def __init__(self, n: int) -> None:
            self._n = n

        def estimate_inmemory_data_size(self) -> int:
            return 8 * self._n

        def get_read_tasks(self, parallelism: int) -> list[ReadTask]:
            return [_ones(self._n)]

    assert numbers(skate.data.read_datasource(Preparing(), override_num_blocks=2, n=3)) == [1] * 6
    assert numbers(skate.data.read_datasource(Creating(), n=2)) == [1, 1]


def test_arguments_that_no_source_takes_are_refused() -> None:
    class Plain(Datasource):
        pass

    with pytest.raises(TypeError, match=r"read_datasource got an unexpected keyword argument 'n'"):
        skate.data.read_datasource(Plain(), n=3)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({}, None),
        ({"concurrency": 2}, 2),
        ({"compute": skate.data.TaskPoolStrategy(size=3)}, 3),
        ({"compute": skate.data.ActorPoolStrategy(size=2)}, 2),
        ({"compute": skate.data.ActorPoolStrategy(min_size=1, max_size=4)}, 4),
        ({"compute": skate.data.ActorPoolStrategy(min_size=1)}, None),
        ({"compute": skate.data.ActorPoolStrategy(size=4), "concurrency": 1}, 1),
    ],
)
def test_a_read_runs_in_as_many_tasks_as_it_is_told(options: dict[str, Any], most: int | None) -> None:
    dataset = skate.data.range(3, **options)
    assert dataset._node.compute.max_tasks == most
    assert dataset.count() == 3


class _Tensors(pa.ExtensionType):
    """Tensors as Daft keeps them: values, and shapes."""

    def __init__(self) -> None:
        super().__init__(
            pa.struct({"data": pa.list_(pa.int64()), "shape": pa.list_(pa.uint64())}), "test.tensors"
        )

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> _Tensors:
        return cls()


def test_tensors_of_daft_are_tensors() -> None:
    class Frame:
        def to_arrow(self) -> pa.Table:
            storage = pa.array(
                [{"data": [1, 2, 3, 4], "shape": [2, 2]}, {"data": [5, 6, 7, 8], "shape": [2, 2]}],
                _Tensors().storage_type,
            )
            return pa.table({"t": pa.ExtensionArray.from_storage(_Tensors(), storage), "n": [1, 2]})

    found = skate.data.from_daft(Frame()).take_all()
    assert [row["t"].tolist() for row in found] == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert [row["n"] for row in found] == [1, 2]


def test_a_frame_of_mars_is_read_through_pandas() -> None:
    class Frame:
        def to_pandas(self) -> pd.DataFrame:
            return pd.DataFrame({"a": [1, 2]})

    assert skate.data.from_mars(Frame()).take_all() == [{"a": 1}, {"a": 2}]
