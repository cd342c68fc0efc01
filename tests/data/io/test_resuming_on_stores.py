"""Resumable writes to an object store, where nothing can be moved and objects appear whole."""

from __future__ import annotations

from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import skate
from skate.data._resuming.records import Records
from skate.data.datasource import FilenameProvider
from skate.data.exceptions import ResumeError
from tests.data.io.test_stores import keys


class Killed(BaseException):
    """What ends a program here, where a kill would end the tests: nobody catches it."""


def rows_in(store: pafs.S3FileSystem) -> list[int]:
    names = [key for key in keys(store) if "/_skate/" not in key]
    return [row for name in names for row in pq.read_table(name, filesystem=store)["id"].to_pylist()]


@pytest.mark.parametrize("when", ["before its record", "after its record"])
def test_a_killed_write_goes_on_and_leaves_no_stray_object(
    bucket: str,
    store: pafs.S3FileSystem,
    when: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commit = Records.commit

    def killed(self: Records, unit: Any) -> None:
        if when == "after its record":
            commit(self, unit)
        if unit.number == 3:
            raise Killed
        if when == "before its record":
            commit(self, unit)

    ds = skate.data.range(60, override_num_blocks=6)
    with monkeypatch.context() as patched:
        patched.setattr(Records, "commit", killed)
        with pytest.raises(Killed):
            ds.write_parquet(f"{bucket}/out", resume=True)
    strays = len([key for key in keys(store) if key.endswith(".parquet")])
    assert strays == 4, "an object is there before it is committed"
    ds.write_parquet(f"{bucket}/out", resume=True)
    assert rows_in(store) == list(range(60))
    assert [key for key in keys(store) if "/_skate/" in key] == [
        "data/out/_skate/finished.json",
        "data/out/_skate/job.json",
    ]
    before = keys(store)
    ds.write_parquet(f"{bucket}/out", resume=True)
    assert keys(store) == before


def test_names_that_do_not_name_their_part_are_an_error(
    bucket: str,
    store: pafs.S3FileSystem,
) -> None:
    class Named(FilenameProvider):
        def get_filename_for_block(
            self, block: Any, write_uuid: str, task_index: int, block_index: int
        ) -> str:
            return f"{task_index}.csv"

    with pytest.raises(ResumeError, match=r"make the filename_provider include write_uuid in the name"):
        skate.data.range(4).write_csv(f"{bucket}/out", resume=True, filename_provider=Named())
