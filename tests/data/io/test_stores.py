"""Files that are not on this machine: S3 and HTTP, on loopback."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from skate.data._io.csv import CSVDatasink, CSVDatasource
from skate.data._io.json import JSONDatasource
from skate.data._io.parquet import ParquetDatasource
from skate.data._io.parquet_sink import ParquetDatasink
from skate.data._io.plain_files import BinaryDatasource, TextDatasource
from skate.data.block import BlockAccessor
from skate.data.datasource import BlockBasedFileDatasink, SaveMode, TaskContext
from skate.data.expressions import col
from tests.data.io.support import read, read_rows, write

pytest.importorskip("moto.server")
TABLE = pa.table({"n": range(100), "g": ["a", "b"] * 50})


def keys(store: pafs.S3FileSystem) -> list[str]:
    found = store.get_file_info(pafs.FileSelector("data", recursive=True))
    return sorted(info.path for info in found if info.type == pafs.FileType.File)


def test_parquet_is_written_and_read_with_a_filesystem(store: pafs.S3FileSystem) -> None:
    write(ParquetDatasink("s3://data/out", filesystem=store, partition_cols=["g"]), TABLE, TABLE)
    assert keys(store) == [
        f"data/out/g={group}/5f3a_00000{task}.parquet" for group in "ab" for task in range(2)
    ]
    source = ParquetDatasource("s3://data/out", filesystem=store, include_paths=True)
    assert source.num_rows() == 200
    pushed = source.apply_predicate((col("g") == "b") & (col("n") < 4))
    assert pushed is not None
    assert sorted(read(pushed[0])["n"].to_pylist()) == [1, 1, 3, 3]
    assert set(read(source)["path"].to_pylist()) == set(keys(store))


def test_a_uri_is_enough(bucket: str, store: pafs.S3FileSystem) -> None:
    write(CSVDatasink(f"{bucket}/out"), TABLE)
    assert read(CSVDatasource(f"{bucket}/out")).equals(TABLE)


@pytest.mark.parametrize("name", ["with space.csv", "ha#sh.csv", "per%20cent.csv", "ünï.csv", "plus+.csv"])
def test_odd_characters_in_keys_are_kept(bucket: str, store: pafs.S3FileSystem, name: str) -> None:
    with store.open_output_stream(f"data/{name}") as file:
        file.write(b"a\n1\n")
    assert read_rows(CSVDatasource(f"{bucket}/{name}", include_paths=True)) == [
        {"a": 1, "path": f"data/{name}"}
    ]


def test_globs_and_folders_are_listed(bucket: str, store: pafs.S3FileSystem) -> None:
    for key in ("data/in/a.txt", "data/in/b.csv", "data/in/deep/c.txt", "data/in/_temporary/d.txt"):
        with store.open_output_stream(key) as file:
            file.write(key[-5:].encode())
    assert [row["text"] for row in read_rows(TextDatasource(f"{bucket}/in/*.txt"))] == ["a.txt"]
    assert [row["text"] for row in read_rows(TextDatasource(f"{bucket}/in/**/*.txt"))] == ["a.txt", "c.txt"]
    whole = BinaryDatasource(f"{bucket}/in", filesystem=store)
    assert [row["bytes"] for row in read_rows(whole)] == [b"a.txt", b"b.csv", b"c.txt"]


def test_many_small_objects_are_read_in_order(bucket: str, store: pafs.S3FileSystem) -> None:
    for number in range(40):
        with store.open_output_stream(f"data/in/{number:02}") as file:
            file.write(b"%d" % number)
    found = [int(row["bytes"]) for row in read_rows(BinaryDatasource(f"{bucket}/in"), parallelism=1)]
    assert found == list(range(40))


def test_a_missing_bucket_or_key_is_an_error_that_names_it(bucket: str, store: pafs.S3FileSystem) -> None:
    with pytest.raises((OSError, ValueError), match=r"nosuch"):
        CSVDatasource("s3://nosuch/x.csv")
    with pytest.raises(FileNotFoundError, match=r"data/nosuch\.csv"):
        CSVDatasource(f"{bucket}/nosuch.csv")
    with pytest.raises(OSError, match=r"nosuch"):
        write(CSVDatasink("s3://nosuch/out", filesystem=store), TABLE)


def test_an_object_that_fails_does_not_stay(bucket: str, store: pafs.S3FileSystem) -> None:
    class Failing(BlockBasedFileDatasink):
        def write_block_to_file(self, block: BlockAccessor, file: pa.NativeFile) -> None:
            file.write(b"half")
            raise RuntimeError("spam")

    with pytest.raises(RuntimeError, match=r"spam"):
        Failing(f"{bucket}/out", filesystem=store).write([TABLE], TaskContext(task_idx=0))
    assert keys(store) == []


def test_modes_hold_for_objects_too(bucket: str, store: pafs.S3FileSystem) -> None:
    write(CSVDatasink(f"{bucket}/out"), TABLE, write_uuid="first")
    with pytest.raises(ValueError, match=r"already exists"):
        write(CSVDatasink(f"{bucket}/out", mode=SaveMode.ERROR), TABLE)
    write(CSVDatasink(f"{bucket}/out", mode=SaveMode.OVERWRITE), TABLE, write_uuid="second")
    assert keys(store) == ["data/out/second_000000.csv"]


def test_an_object_that_changes_gets_another_identity(bucket: str, store: pafs.S3FileSystem) -> None:
    def identity() -> str | None:
        (task,) = BinaryDatasource(f"{bucket}/x").get_read_tasks(1)
        return task.identity

    with store.open_output_stream("data/x") as file:
        file.write(b"spam")
    before = identity()
    assert before == identity()
    with store.open_output_stream("data/x") as file:
        file.write(b"other")
    assert before != identity()


@pytest.fixture
def site(tmp_path: Path, client_libraries: None) -> Iterator[str]:
    pq.write_table(TABLE, tmp_path / "x.parquet")
    (tmp_path / "x.json").write_text('{"a": 1}\n')
    (tmp_path / "y.json").write_text('{"a": 2}\n')

    class Quiet(http.server.SimpleHTTPRequestHandler):
        """Serves files, and answers `/403/…` with that status."""

        def do_GET(self) -> None:
            if self.path[1:4].isdecimal():
                self.send_error(int(self.path[1:4]))
            else:
                super().do_GET()

        def do_HEAD(self) -> None:
            if self.path[1:4].isdecimal():
                self.send_error(int(self.path[1:4]))
            else:
                super().do_HEAD()

        def log_message(self, format: str, *args: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


def test_files_are_read_over_http(site: str) -> None:
    source = JSONDatasource([f"{site}/x.json", f"{site}/y.json"], include_paths=True)
    assert read_rows(source) == [{"a": 1, "path": f"{site}/x.json"}, {"a": 2, "path": f"{site}/y.json"}]
    with pytest.raises(FileNotFoundError, match=r"nosuch\.json"):
        JSONDatasource(f"{site}/nosuch.json")


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (404, FileNotFoundError, r"no such file or folder: {url}"),
        (410, FileNotFoundError, r"no such file or folder: {url}"),
        (401, PermissionError, r"{url} returned 401 Unauthorized: pass filesystem= with credentials"),
        (403, PermissionError, r"{url} returned 403 Forbidden: pass filesystem= with credentials"),
        (500, ConnectionError, r"{url} returned 500 Internal Server Error: the server failed"),
        (503, ConnectionError, r"{url} returned 503 Service Unavailable"),
    ],
)
def test_what_a_server_answers_is_told(site: str, status: int, error: type[Exception], message: str) -> None:
    url = f"{site}/{status}/x.json"
    with pytest.raises(error, match=message.format(url=url)):
        JSONDatasource([f"{site}/x.json", url])


def test_a_server_that_is_not_there_is_told(client_libraries: None) -> None:
    with pytest.raises(
        ConnectionError, match=r"cannot reach http://127\.0\.0\.1:9/x\.json: .*Check the address"
    ):
        JSONDatasource("http://127.0.0.1:9/x.json")


def test_only_what_is_missing_is_ignored_as_missing(site: str) -> None:
    paths = [f"{site}/x.json", f"{site}/404/y.json"]
    assert read_rows(JSONDatasource(paths, ignore_missing_paths=True)) == [{"a": 1}]
    with pytest.raises(PermissionError, match=r"403"):
        JSONDatasource([*paths, f"{site}/403/y.json"], ignore_missing_paths=True)


def test_a_missing_bucket_is_told_from_a_missing_key(bucket: str, store: pafs.S3FileSystem) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"no such bucket: nowhere \(looking for s3://nowhere/a\.csv\)"
    ):
        CSVDatasource("nowhere/a.csv", filesystem=store)
    with pytest.raises(FileNotFoundError, match=r"no such file or folder: data/gone\.csv"):
        CSVDatasource("data/gone.csv", filesystem=store)
