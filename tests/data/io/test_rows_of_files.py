"""Text, whole files, images and NumPy arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from skate.data._block import rows, tensors
from skate.data._io import numpy as numpy_io
from skate.data._io.media import ImageDatasink, ImageDatasource
from skate.data._io.numpy import NumpyDatasink, NumpyDatasource
from skate.data._io.plain_files import BinaryDatasource, TextDatasource
from skate.data.exceptions import FileReadError
from tests.data.io.support import blocks, read, read_rows, write


def texts(source: TextDatasource) -> list[str]:
    return [row["text"] for row in read_rows(source)]


def test_lines_become_rows(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n\n  \nworld\n")
    assert texts(TextDatasource(tmp_path)) == ["hello", "world"]
    assert texts(TextDatasource(tmp_path, drop_empty_lines=False)) == ["hello", "", "  ", "world"]


def test_lines_may_end_as_on_windows(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\r\nb\r\n\r\nc")
    assert texts(TextDatasource(tmp_path)) == ["a", "b", "c"]


def test_lines_across_pieces_and_encodings_stay_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skate.data._io.plain_files._PIECE_BYTES", 3)
    (tmp_path / "x").write_text("grün\nblau ½\nrot", encoding="utf-8")
    assert texts(TextDatasource(tmp_path)) == ["grün", "blau ½", "rot"]
    (tmp_path / "x").write_text("grün\nrot\n", encoding="utf-16")
    assert texts(TextDatasource(tmp_path, encoding="utf-16")) == ["grün", "rot"]


def test_text_in_another_encoding_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(FileReadError, match=r"x: 'utf-8' codec"):
        read(TextDatasource(tmp_path))
    with pytest.raises(ValueError, match=r"'utf-99'"):
        TextDatasource(tmp_path, encoding="utf-99")


def test_empty_text_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    assert blocks(TextDatasource(tmp_path)) == []


def test_a_file_becomes_a_row(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"spam")
    (tmp_path / "b").write_bytes(b"")
    source = BinaryDatasource(tmp_path, include_paths=True)
    assert source.num_rows() == 2
    assert read_rows(source) == [
        {"bytes": b"spam", "path": str(tmp_path / "a")},
        {"bytes": b"", "path": str(tmp_path / "b")},
    ]


def framed_snappy(data: bytes) -> bytes:
    """Frame as the Snappy format describes: an identifier, then chunks."""
    compressed: bytes = pa.compress(data, codec="snappy", asbytes=True)
    chunk = b"\x00" + (len(compressed) + 4).to_bytes(3, "little") + b"\0\0\0\0" + compressed
    plain = b"\x01" + (len(data) + 4).to_bytes(3, "little") + b"\0\0\0\0" + data
    padding = b"\xfe\x02\x00\x00xx"
    return b"\xff\x06\x00\x00sNaPpY" + chunk + padding + plain


def test_framed_snappy_is_read_by_suffix_or_by_option(tmp_path: Path) -> None:
    (tmp_path / "x.snappy").write_bytes(framed_snappy(b"spam" * 100))
    assert read_rows(BinaryDatasource(tmp_path)) == [{"bytes": b"spam" * 200}]
    (tmp_path / "x.snappy").rename(tmp_path / "x")
    assert read_rows(BinaryDatasource(tmp_path, open_stream_args={"compression": "snappy"})) == [
        {"bytes": b"spam" * 200}
    ]


@pytest.mark.parametrize("data", [b"spam", framed_snappy(b"spam")[:-3]])
def test_snappy_that_is_none_or_cut_off_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.snappy").write_bytes(data)
    with pytest.raises(FileReadError, match=r"x\.snappy"):
        read(BinaryDatasource(tmp_path))


def test_a_compressed_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "x.gz").write_bytes(gzip.compress(b"spam" * 1000)[:-20])
    with pytest.raises((OSError, ValueError), match=r"x\.gz"):
        read(BinaryDatasource(tmp_path))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for name, size, mode in (("a.png", (4, 6), "RGB"), ("b.png", (8, 2), "L")):
        Image.new(mode, size).save(tmp_path / name)
    return tmp_path


def shapes(source: ImageDatasource) -> list[tuple[int, ...]]:
    return [row["image"].shape for row in read_rows(source)]


def test_images_become_arrays(pictures: Path) -> None:
    assert shapes(ImageDatasource(pictures)) == [(6, 4, 3), (2, 8)]


def test_images_are_scaled_and_converted(pictures: Path) -> None:
    source = ImageDatasource(pictures, size=(5, 3), mode="RGB")
    assert shapes(source) == [(5, 3, 3), (5, 3, 3)]
    assert isinstance(read(source).schema.field("image").type, pa.FixedShapeTensorType)
    assert source.estimate_inmemory_data_size() == 2 * 5 * 3 * 3


@pytest.mark.parametrize("size", [(-1, 2), (2, 0), (1, 2, 3)])
def test_a_size_has_to_be_two_positive_numbers(pictures: Path, size: Any) -> None:
    with pytest.raises(ValueError, match=r"height and width"):
        ImageDatasource(pictures, size=size)


@pytest.mark.parametrize("data", [b"spam", b"\x89PNG\r\n\x1a\n" + b"\0" * 20])
def test_a_corrupt_image_among_good_ones_is_named(pictures: Path, data: bytes) -> None:
    (pictures / "c.png").write_bytes(data)
    with pytest.raises(FileReadError, match=r"c\.png"):
        read(ImageDatasource(pictures))


@pytest.mark.parametrize("file_format", ["png", "jpg"])
def test_images_are_written_a_file_for_each_row(tmp_path: Path, file_format: str) -> None:
    arrays = [np.zeros((4, 4, 3), np.uint8), np.full((2, 2, 3), 255, np.uint8)]
    write(ImageDatasink(tmp_path, "i", file_format), rows.to_block([{"i": array} for array in arrays]))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [f".{file_format}"] * 2
    assert [array.tolist() for array in arrays] == [
        row["image"].tolist() for row in read_rows(ImageDatasource(tmp_path))
    ]


def test_a_column_of_images_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'image'.*'i'"):
        write(ImageDatasink(tmp_path, "image"), pa.table({"i": [1]}))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10),
        np.arange(24.0).reshape(4, 2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.empty((0, 2)),
        np.array(["a", "bc"]),
        np.array([True, False]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_are_read_along_their_first_axis(
    tmp_path: Path, array: np.ndarray[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_io, "_PIECE_BYTES", 32)
    np.save(tmp_path / "x.npy", array)
    found = read_rows(NumpyDatasource(tmp_path))
    assert [np.asarray(row["data"]).tolist() for row in found] == array.tolist()


def test_arrays_of_objects_are_read_only_if_it_is_allowed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(["a", "b"], object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"allow_pickle"):
        read(NumpyDatasource(tmp_path))
    allowed = NumpyDatasource(tmp_path, numpy_load_args={"allow_pickle": True})
    assert [row["data"] for row in read_rows(allowed)] == ["a", "b"]


@pytest.mark.parametrize("keep", [4, 20, 140])
def test_an_array_that_is_cut_off_is_named(tmp_path: Path, keep: int) -> None:
    np.save(tmp_path / "x.npy", np.arange(10))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:keep])
    with pytest.raises(FileReadError, match=r"x\.npy"):
        read(NumpyDatasource(tmp_path))


def test_archives_of_arrays_become_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(2), b=np.arange(4).reshape(2, 2))
    source = NumpyDatasource(tmp_path, file_extensions=["npz"])
    assert read(source).column_names == ["a", "b"]


def test_a_column_is_written_as_arrays(tmp_path: Path) -> None:
    array = np.arange(12).reshape(2, 2, 3)
    write(NumpyDatasink(tmp_path, "t"), pa.table({"t": tensors.from_ndarray(array), "n": [1, 2]}))
    (path,) = tmp_path.iterdir()
    np.testing.assert_array_equal(np.load(path), array)
    with pytest.raises(ValueError, match=r"'z'.*'n'"):
        write(NumpyDatasink(tmp_path, "z"), pa.table({"n": [1]}))
