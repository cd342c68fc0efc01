"""Downloads: the bytes that URIs name."""

from __future__ import annotations

import functools
import gc
import gzip
import logging
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from skate.air import _filesystems as filesystems
from skate.data._expressions.evaluate import project
from skate.data.expressions import ColumnNotFoundError, ExpressionTypeError, col, download, lit
from tests import leaks
from tests.conftest import LeakWatch


def downloaded(uris: list[str | None], filesystem: pafs.FileSystem | None = None) -> list[bytes | None]:
    block = pa.table({"uri": pa.array(uris, pa.string())})
    column = project(block, [download("uri", filesystem=filesystem).alias("bytes")]).column("bytes")
    assert column.type == pa.binary()
    found: list[bytes | None] = column.to_pylist()
    return found


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    contents = [b"one", b"", b"\x00\xff" * 1000]
    paths = [tmp_path / f"{index} file#.bin" for index in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def test_paths_and_uris_of_local_files_are_read_in_order(files: list[Path]) -> None:
    uris = [str(files[0]), f"local://{files[1]}", f"file://{files[2]}"]
    assert downloaded([*uris]) == [path.read_bytes() for path in files]


def test_more_files_than_threads_come_in_order(tmp_path: Path) -> None:
    paths = [tmp_path / str(index) for index in range(200)]
    for index, path in enumerate(paths):
        path.write_bytes(str(index).encode())
    assert downloaded([str(path) for path in paths]) == [str(index).encode() for index in range(200)]


def test_a_compressed_file_comes_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text"))
    assert downloaded([str(path)]) == [path.read_bytes()]


def test_what_cannot_be_read_is_null_and_logged(files: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    bad = [
        "",
        "foobar",
        f"{files[0]}.missing",
        "local:///no/such/file",
        "nonsense://x/y",
        str(files[0].parent),
    ]
    with caplog.at_level(logging.WARNING, logger="skate.data"):
        assert downloaded([*bad, str(files[0]), None]) == [None] * 6 + [b"one", None]
    (record,) = caplog.records
    assert "6 of 8 downloads failed" in record.getMessage()


def test_a_filesystem_of_ones_own_is_used(files: list[Path]) -> None:
    below = pafs.SubTreeFileSystem(str(files[0].parent), pafs.LocalFileSystem())
    assert downloaded([files[0].name], below) == [b"one"]


def test_no_uris_are_no_downloads() -> None:
    assert downloaded([]) == []
    block = pa.table({"uri": pa.nulls(2)})
    assert project(block, [download("uri").alias("x")]).column("x").to_pylist() == [None, None]


def test_uris_may_be_dictionary_encoded_or_computed(files: list[Path]) -> None:
    block = pa.table({"name": pa.array([files[0].name]).dictionary_encode()})
    expr = download("uri").substitute({"uri": lit(f"{files[0].parent}/") + col("name")})
    assert project(block, [expr.alias("x")]).column("x").to_pylist() == [b"one"]
    block = pa.table({"uri": pa.array([str(files[0])]).dictionary_encode()})
    assert project(block, [download("uri").alias("x")]).column("x").to_pylist() == [b"one"]


def test_uris_have_to_be_there_and_to_be_text() -> None:
    with pytest.raises(ColumnNotFoundError, match="'uri'"):
        project(pa.table({"a": [1]}), [download("uri").alias("x")])
    with pytest.raises(ExpressionTypeError, match=r"download\('a'\).*as text.*int64"):
        project(pa.table({"a": [1]}), [download("a").alias("x")])


@pytest.fixture
def web_client(leak_watch: LeakWatch) -> Iterator[None]:
    """Allow what fsspec keeps as long as the process lives: an event loop, and its thread."""
    yield
    filesystems._from_fsspec.cache_clear()
    gc.collect()
    leak_watch.before = leaks.Snapshot.take()


@pytest.fixture
def website(web_client: None, tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_web_pages_are_read_and_a_missing_one_is_null(files: list[Path], website: str) -> None:
    (files[0].parent / "page.txt").write_bytes(b"web")
    assert downloaded([f"{website}/page.txt", f"{website}/missing"]) == [b"web", None]
