"""Paths that are wrong, files that are damaged, arguments of the wrong kind: each is named, with what to do."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data._io.errors import with_path
from skate.data.exceptions import FileReadError

GARBAGE = b"\xff\xfe\x00no format starts like this\x93"
NOBODY = 65534


def _write_arrow(folder: Path) -> None:
    with (
        pa.OSFile(str(folder / "a.arrow"), "wb") as file,
        pa.ipc.new_file(file, pa.schema({"a": pa.int64()})) as out,
    ):
        out.write_table(pa.table({"a": [1]}))


def _write_avro(folder: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
    with open(folder / "a.avro", "wb") as file:
        fastavro.writer(file, schema, [{"a": 1}])


def _write_audio(folder: Path) -> None:
    pytest.importorskip("soundfile").write(folder / "a.wav", np.zeros((8, 1)), 8000)


def _items(form: str) -> Callable[[Path], None]:
    return lambda folder: getattr(skate.data.from_items([{"a": 1}]), f"write_{form}")(str(folder))


def _arrays(form: str) -> Callable[[Path], None]:
    pixels = np.zeros((1, 4, 4, 3), dtype=np.uint8)
    return lambda folder: getattr(skate.data.from_numpy(pixels), f"write_{form}")(str(folder), column="data")


# Reader, what writes a good file, the extension of a bad one, and its content.
FORMATS: dict[str, tuple[Callable[[Path], Any], str, bytes]] = {
    "parquet": (_items("parquet"), "parquet", GARBAGE),
    "csv": (_items("csv"), "csv", b"a\n1\n1,2,3\n"),
    "json": (_items("json"), "json", GARBAGE),
    "orc": (_items("orc"), "orc", GARBAGE),
    "tfrecords": (_items("tfrecords"), "tfrecords", GARBAGE),
    "webdataset": (
        lambda folder: skate.data.from_items([{"__key__": "k", "txt": "t"}]).write_webdataset(str(folder)),
        "tar",
        GARBAGE,
    ),
    "arrow": (_write_arrow, "arrow", GARBAGE),
    "avro": (_write_avro, "avro", GARBAGE),
    "numpy": (_arrays("numpy"), "npy", GARBAGE),
    "images": (_arrays("images"), "png", GARBAGE),
    "text": (lambda folder: (folder / "a.txt").write_text("good\n"), "txt", GARBAGE),
    "audio": (_write_audio, "wav", GARBAGE),
}
every_format = pytest.mark.parametrize("form", FORMATS)


def reader_of(form: str) -> Any:
    return getattr(skate.data, f"read_{form}")


@every_format
def test_a_missing_path_is_named(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"gone.{FORMATS[form][1]}"
    with pytest.raises(FileNotFoundError, match=rf"no such file or folder: {path}\. Check the path"):
        reader_of(form)(str(path))


@every_format
def test_an_empty_folder_is_named(form: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"no files found to read in {tmp_path}"):
        reader_of(form)(str(tmp_path))


@every_format
def test_a_damaged_file_among_good_ones_is_named(form: str, tmp_path: Path) -> None:
    write, extension, content = FORMATS[form]
    write(tmp_path)
    bad = tmp_path / f"zz_bad.{extension}"
    bad.write_bytes(content)
    with pytest.raises(FileReadError, match=rf"Failed to read \w+ file {bad}: "):
        reader_of(form)(str(tmp_path)).take_all()
    bad.unlink()
    assert reader_of(form)(str(tmp_path)).count() == 1


def test_a_parquet_file_that_is_damaged_behind_a_good_footer_is_named(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([str(i) * 50 for i in range(2000)])})
    pq.write_table(table, tmp_path / "good.parquet")
    bad = tmp_path / "zz_bad.parquet"
    pq.write_table(table, bad, compression="zstd", use_dictionary=False)
    content = bytearray(bad.read_bytes())
    content[50:2000] = bytes(1950)
    bad.write_bytes(content)
    with pytest.raises(FileReadError, match=rf"Failed to read Parquet file {bad}: ") as caught:
        skate.data.read_parquet(str(tmp_path)).take_all()
    assert isinstance(caught.value, OSError)  # as pyarrow raises it


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"a,b\n1,2\n1,2,3\n", "invalid_row_handler"),
        (b"a\n1\n\xff\xfe\n", "encoding"),
    ],
)
def test_an_error_of_csv_says_what_to_do(content: bytes, hint: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    options = {} if hint == "invalid_row_handler" else {"convert_options": _strings()}
    with pytest.raises(FileReadError, match=hint):
        skate.data.read_csv(str(tmp_path), **options).take_all()


def _strings() -> Any:
    import pyarrow.csv as pacsv

    return pacsv.ConvertOptions(column_types={"a": pa.string()})


@every_format
@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        (5, TypeError, r"paths is 5: pass a path or a list of paths"),
        (None, TypeError, r"paths is None: pass a path"),
        (["a", 5], TypeError, r"a path is 5: pass strings or pathlib paths"),
        ([], ValueError, r"the list of paths is empty"),
    ],
)
def test_paths_of_the_wrong_kind_are_refused(
    form: str, paths: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        reader_of(form)(paths)


@pytest.mark.parametrize(
    ("form", "option", "closest"),
    [
        ("parquet", "colums", "columns"),
        ("parquet", "buffersize", "buffer_size"),
        ("csv", "parse_option", "parse_options"),
        ("json", "read_option", "read_options"),
        ("numpy", "mmap_mod", "mmap_mode"),
        ("text", "include_path", "include_paths"),
        ("images", "file_extension", "file_extensions"),
    ],
)
def test_a_misspelled_option_is_refused_with_the_closest_one(
    form: str, option: str, closest: str, tmp_path: Path
) -> None:
    FORMATS[form][0](tmp_path)
    with pytest.raises(TypeError, match=rf"argument '{option}': did you mean '{closest}'\?"):
        reader_of(form)(str(tmp_path), **{option: None})


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"filesystem": "s3"}, TypeError, r"filesystem is a str: pass a pyarrow\.fs\.FileSystem"),
        ({"shuffle": "rows"}, ValueError, r"shuffle is 'rows': use None, 'files'"),
        (
            {"override_num_blocks": 0},
            ValueError,
            r"`override_num_blocks` must be a positive integer or None, got 0",
        ),
        (
            {"file_extensions": ["csv"]},
            ValueError,
            r"No input files found .*\['csv'\].*pass file_extensions=None",
        ),
    ],
)
def test_options_of_the_wrong_kind_are_refused(
    options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    with pytest.raises(error, match=message):
        skate.data.read_text(str(tmp_path / "a.txt"), **options)


def test_a_scheme_that_nobody_knows_is_named() -> None:
    with pytest.raises(ValueError, match=r"no filesystem is known for zzz://: pass `filesystem=`"):
        skate.data.read_csv("zzz://bucket/a.csv")


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """Give a folder that everybody may look into, and make this process a user without rights."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    is_root = os.geteuid() == 0
    yield folder
    if is_root:
        os.seteuid(0)
    for path in folder.rglob("*"):
        path.chmod(0o755)
    shutil.rmtree(folder)


def _drop_rights() -> None:
    if os.geteuid() == 0:
        os.seteuid(NOBODY)


@pytest.mark.parametrize("form", ["parquet", "csv", "text"])
def test_a_file_that_may_not_be_read_is_named(form: str, as_nobody: Path) -> None:
    write, extension, _ = FORMATS[form]
    write(as_nobody)
    closed = as_nobody / f"zz_closed.{extension}"
    shutil.copy(next(as_nobody.glob(f"*.{extension}")), closed)
    closed.chmod(0)
    _drop_rights()
    with pytest.raises(PermissionError, match=rf"{closed}.*Grant the user of this process read access"):
        reader_of(form)(str(as_nobody)).take_all()


def test_a_folder_that_may_not_be_looked_into_is_named(as_nobody: Path) -> None:
    closed = as_nobody / "closed"
    closed.mkdir()
    (closed / "a.csv").write_text("a\n1\n")
    closed.chmod(0)
    _drop_rights()
    with pytest.raises(PermissionError, match=rf"{closed}"):
        skate.data.read_csv(str(closed))


def test_what_is_known_of_a_file_survives_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(FileReadError("CSV", "a.csv", "it is damaged", "Mend it")))
    assert (error.kind, error.path, error.reason, error.hint) == ("CSV", "a.csv", "it is damaged", "Mend it")
    assert error.args == ("Failed to read CSV file a.csv: it is damaged. Mend it",)


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (OSError("Corrupt snappy compressed data."), FileReadError),
        (FileNotFoundError(2, "gone"), FileNotFoundError),
        (PermissionError(13, "closed"), PermissionError),
        (ValueError("odd"), FileReadError),
        (EOFError(), FileReadError),
    ],
)
def test_an_error_gets_the_name_of_the_file_and_keeps_what_it_is(
    raised: Exception, wanted: type[Exception]
) -> None:
    made = with_path(raised, "CSV", "a.csv")
    assert isinstance(made, wanted)
    assert "a.csv" in str(made)
    assert isinstance(raised, OSError) == isinstance(made, OSError)
