from __future__ import annotations

import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from skate.data._block import rows
from skate.data._block.rows import to_block_with_objects
from skate.data._io.pickled_columns import ALLOW_PICKLED
from skate.data._io.webdataset import WebDatasetDatasink, WebDatasetDatasource
from skate.data.exceptions import FileReadError
from tests.data.io.support import read, read_rows, write


def make(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    members: dict[str, bytes] = {}
    for number in range(3):
        members |= {
            f"dir/{number}.txt": b"text",
            f"dir/{number}.test.txt": b"other",
            f"dir/{number}.cls": b"%d" % number,
            f"dir/{number}.raw": b"bytes",
        }
    return make(tmp_path / "x.tar", members)


def test_members_with_a_common_stem_make_a_row(archive: Path) -> None:
    found = read_rows(WebDatasetDatasource(archive))
    assert found[1] == {
        "__key__": "dir/1",
        "__url__": str(archive),
        "txt": "text",
        "test.txt": "other",
        "cls": 1,
        "raw": b"bytes",
    }


@pytest.mark.parametrize(
    ("suffixes", "expected"),
    [
        (["txt", "cls"], {"txt", "cls"}),
        (["*.txt"], {"txt", "test.txt"}),
        (lambda name: name.endswith("txt"), {"txt", "test.txt"}),
    ],
)
def test_columns_can_be_chosen(archive: Path, suffixes: Any, expected: set[str]) -> None:
    table = read(WebDatasetDatasource(archive, suffixes=suffixes))
    assert set(table.column_names) == {"__key__", "__url__"} | expected


def test_members_can_be_chosen_and_renamed(archive: Path) -> None:
    chosen = WebDatasetDatasource(archive, fileselect=["dir/1.*"])
    assert [row["__key__"] for row in read_rows(chosen)] == ["dir/1"]
    renamed = WebDatasetDatasource(archive, filerename=lambda name: name.replace("txt", "text"))
    assert {"text", "test.text"} <= set(read(renamed).column_names)


def test_without_decoder_members_are_bytes(archive: Path) -> None:
    assert read_rows(WebDatasetDatasource(archive, decoder=None))[1]["cls"] == b"1"


def test_a_decoder_of_ones_own_gets_rows(archive: Path) -> None:
    def decode(row: dict[str, Any]) -> dict[str, Any]:
        return {"doubled": row["cls"] * 2}

    assert read_rows(WebDatasetDatasource(archive, decoder=[True, decode])) == [
        {"doubled": n} for n in (0, 2, 4)
    ]


def test_values_come_back_as_they_were_written(tmp_path: Path) -> None:
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    row = {
        "__key__": "k",
        "png": image,
        "gray.png": image[:, :, 0],
        "json": {"a": [1, 2], "b": {"c": "d"}},
        "mp": {"a": [1, 2]},
        "npy": np.arange(3.0),
        "txt": "text",
        "cls": 7,
        "raw": b"bytes",
    }
    write(WebDatasetDatasink(tmp_path), rows.to_block([row]))
    (found,) = read_rows(WebDatasetDatasource(tmp_path))
    for name, value in row.items():
        np.testing.assert_equal(found[name], value)
    (expanded,) = read_rows(WebDatasetDatasource(tmp_path, expand_json=True))
    assert expanded["a"] == [1, 2]
    (pictures,) = read_rows(WebDatasetDatasource(tmp_path, decoder="PIL"))
    assert isinstance(pictures["png"], Image.Image)


def test_rows_without_key_are_numbered(tmp_path: Path) -> None:
    write(WebDatasetDatasink(tmp_path), rows.to_block([{"txt": "a"}, {"txt": "b"}]))
    assert [row["txt"] for row in read_rows(WebDatasetDatasource(tmp_path))] == ["a", "b"]


def test_a_value_that_nothing_makes_bytes_of_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'spam' holds a dict"):
        write(WebDatasetDatasink(tmp_path), to_block_with_objects([{"spam": {"a": 1}}]))


@pytest.mark.parametrize("name", ["x.pkl", "x.pt", "x.pth", "x.pickle"])
def test_pickles_are_loaded_only_if_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data = io.BytesIO()
    if "pt" in name:
        torch.save(np.arange(3), data)
    else:
        pickle.dump(np.arange(3), data)
    path = make(tmp_path / "x.tar", {name: data.getvalue()})
    with pytest.raises(FileReadError, match=rf"Refusing to unpickle.*{ALLOW_PICKLED}"):
        read(WebDatasetDatasource(path))
    monkeypatch.setenv(ALLOW_PICKLED, "1")
    (row,) = read_rows(WebDatasetDatasource(path))
    assert list(row[name[2:]]) == [0, 1, 2]


def test_tensors_of_torch_are_safe_to_load(tmp_path: Path) -> None:
    data = io.BytesIO()
    torch.save(torch.arange(3), data)
    (row,) = read_rows(WebDatasetDatasource(make(tmp_path / "x.tar", {"k.pt": data.getvalue()})))
    assert list(row["pt"]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"1.a": b"", "2.a": b"", "1.b": b""}, "not contiguous.*--sort=name"),
        ({"1.a": b"", "1.A": b""}, "twice"),
    ],
)
def test_an_archive_that_is_out_of_order_is_an_error(
    tmp_path: Path, members: dict[str, bytes], message: str
) -> None:
    with pytest.raises(FileReadError, match=message):
        read(WebDatasetDatasource(make(tmp_path / "x.tar", members)))


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"spam" * 1000)
    with pytest.raises(FileReadError, match=r"x\.tar"):
        read(WebDatasetDatasource(tmp_path))


def test_rows_may_have_different_columns(tmp_path: Path) -> None:
    path = make(tmp_path / "x.tar", {"1.txt": b"a", "2.cls": b"3"})
    assert [(row["txt"], row["cls"]) for row in read_rows(WebDatasetDatasource(path))] == [
        ("a", None),
        (None, 3),
    ]


@pytest.mark.parametrize("variable", [ALLOW_PICKLED, "RAY_DATA_WEBDATASET_ALLOW_UNSAFE_DESERIALIZATION"])
def test_trust_is_said_where_a_dataset_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    path = make(tmp_path / "x.tar", {"0.pkl": pickle.dumps({"key": "value"})})
    monkeypatch.setenv(variable, "1")
    source = WebDatasetDatasource(path)
    monkeypatch.delenv(variable)  # as in a worker that does not know it
    assert read_rows(source)[0]["pkl"] == {"key": "value"}
