from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs as pafs
import pytest

import skate
from skate.data._io import pickled_columns
from skate.data._io.zarr import ZarrDatasource
from tests.data.io.support import read_rows

zarr = pytest.importorskip("zarr", minversion="3")
IMAGES = np.arange(5 * 2 * 2).reshape(5, 2, 2)
LABELS = np.arange(5, dtype=np.uint8)


@pytest.fixture(autouse=True)
def thread() -> Iterator[None]:
    yield
    from zarr.core.sync import cleanup_resources

    cleanup_resources()  # the library keeps a thread for its event loop


def make(path: Any, *, zarr_format: int = 2) -> Any:
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("images", data=IMAGES, chunks=(2, 2, 2))
    group.create_group("more").create_array("labels", data=LABELS, chunks=(2,))
    return group


@pytest.fixture
def path(tmp_path: Path) -> str:
    make(str(tmp_path / "s"))
    zarr.consolidate_metadata(str(tmp_path / "s"))
    return str(tmp_path / "s")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_row_is_a_chunk_of_an_array(tmp_path: Path, zarr_format: int) -> None:
    make(str(tmp_path / "s"), zarr_format=zarr_format)
    source = ZarrDatasource(str(tmp_path / "s"), array_paths=["/images"])
    assert source.num_rows() == 3
    assert source.estimate_inmemory_data_size() == IMAGES.nbytes
    assert len(source.get_read_tasks(2)) == 2
    found = read_rows(source)
    assert [row["chunk_index"] for row in found] == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    assert found[2]["chunk_slices"] == [[4, 5], [0, 2], [0, 2]]
    np.testing.assert_array_equal(np.concatenate([row["chunk"] for row in found]), IMAGES)


def test_all_arrays_of_a_store_are_read(path: str) -> None:
    found = skate.data.read_zarr(path)
    assert found.count() == 6
    assert [row["array"] for row in found.iter_rows()] == ["images"] * 3 + ["more/labels"] * 3


def test_chunks_are_read_in_other_shapes(path: str) -> None:
    assert ZarrDatasource(path, chunk_shapes=[5]).num_rows() == 2
    source = ZarrDatasource(path, chunk_shapes={"images": [3, 1]})
    shapes = [row["chunk"].shape for row in read_rows(source) if row["array"] == "images"]
    assert shapes == [(3, 1, 2), (3, 1, 2), (2, 1, 2), (2, 1, 2)]


def test_arrays_that_share_an_axis_are_read_side_by_side(path: str) -> None:
    found = skate.data.read_zarr(path, align_axis_0=True, overlap=1).take_all()
    assert [(row["t_start"], row["t_stop"]) for row in found] == [(0, 2), (2, 4), (4, 5)]
    assert [row["more/labels"].tolist() for row in found] == [[0, 1, 2], [2, 3, 4], [4]]
    np.testing.assert_array_equal(found[1]["images"], IMAGES[2:5])


def test_a_store_may_be_one_array_of_any_rank(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "a"), data=LABELS, chunks=(4,))
    assert [row["chunk"].tolist() for row in read_rows(ZarrDatasource(str(tmp_path / "a")))] == [
        [0, 1, 2, 3],
        [4],
    ]
    zarr.create_array(str(tmp_path / "b"), data=np.array(7))
    [row] = read_rows(ZarrDatasource(str(tmp_path / "b")))
    assert (row["chunk_index"], int(row["chunk"])) == ([], 7)


def test_a_store_is_read_from_an_archive_and_from_any_filesystem(path: str, tmp_path: Path) -> None:
    with zarr.storage.ZipStore(str(tmp_path / "s.zip"), mode="w") as store:
        make(store)
    archive = ZarrDatasource(str(tmp_path / "s.zip"), array_paths=["images"])
    elsewhere = ZarrDatasource(
        "s", filesystem=pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), array_paths=["images"]
    )
    for source in (archive, elsewhere):
        np.testing.assert_array_equal(np.concatenate([row["chunk"] for row in read_rows(source)]), IMAGES)


def test_a_store_without_consolidated_metadata_is_listed_on_demand_only(tmp_path: Path) -> None:
    make(str(tmp_path / "s"))
    with pytest.raises(ValueError, match=r"not consolidated.*array_paths"):
        ZarrDatasource(str(tmp_path / "s"))
    assert ZarrDatasource(str(tmp_path / "s"), allow_full_metadata_scan=True).num_rows() == 6


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"array_paths": ["nosuch"]}, r"no array 'nosuch'.*images"),
        ({"array_paths": ["more"]}, r"is a group"),
        ({"chunk_shapes": [0]}, r"chunk_shapes is \[0\]"),
        ({"chunk_shapes": 2}, r"chunk_shapes is 2"),
        ({"chunk_shapes": [1, 1]}, r"2 axes for 'more/labels'"),
        ({"chunk_shapes": {"nosuch": [1]}}, r"\['nosuch'\]"),
        ({"overlap": 1}, r"align_axis_0"),
        ({"overlap": -1}, r"overlap is -1"),
        ({"align_axis_0": True, "chunk_shapes": {"images": [3]}}, r"chunk size, which is \{'images': 3"),
    ],
)
def test_options_are_checked(path: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ZarrDatasource(path, **options)


def test_arrays_of_different_lengths_are_not_aligned(path: str) -> None:
    zarr.open_group(path, mode="a").create_array("short", data=np.arange(2), chunks=(2,))
    zarr.consolidate_metadata(path)
    with pytest.raises(ValueError, match=r"'short': 2"):
        ZarrDatasource(path, align_axis_0=True)


def test_a_codec_that_unpickles_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.array(["a", "b"], dtype=np.dtypes.StringDType())
    zarr.create_array(str(tmp_path / "a"), data=text, chunks=(2,), zarr_format=2)
    described = tmp_path / "a" / ".zarray"
    metadata = json.loads(described.read_text())
    metadata["filters"].append({"id": "pickle", "protocol": 5})
    described.write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=r"pickled Python objects.*SKATE_DATA_READ_PICKLED_OBJECTS"):
        ZarrDatasource(str(tmp_path / "a"))
    monkeypatch.setenv(pickled_columns.ALLOW_PICKLED, "1")
    assert ZarrDatasource(str(tmp_path / "a")).num_rows() == 1


def test_an_older_library_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarr, "__version__", "2.18.3")
    with pytest.raises(ImportError, match=r"zarr 3 or newer, and 2\.18\.3"):
        ZarrDatasource(path)
