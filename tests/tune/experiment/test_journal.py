"""The journal of an experiment: durable records, incomplete and damaged lines, compaction, and one writer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.tune._experiment.journal import Journal, read
from skate.tune.error import TuneError

RECORDS = [{"trial": str(i), "loss": i / 3, "text": "ä\n\x00"} for i in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, records: list[dict[str, object]]) -> None:
    with Journal(path) as journal:
        for record in records:
            journal.append(record)


def test_records_are_read_in_the_order_they_were_appended(path: Path) -> None:
    write(path, RECORDS[:12])
    write(path, RECORDS[12:])
    assert list(read(path)) == RECORDS


def test_committed_records_survive_a_kill(path: Path) -> None:
    program = f"""
import os, pathlib
from skate.tune._experiment.journal import Journal
journal = Journal(pathlib.Path({str(path)!r}))
for i in range(100):
    journal.append({{"i": i}})
    journal.commit()
    if i == 57:
        os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert [record["i"] for record in read(path)] == list(range(58))


def test_records_are_appended_while_earlier_ones_are_written_to_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def sync(descriptor: int) -> None:
        begun.set()
        assert may_end.wait(30)

    monkeypatch.setattr(os, "fdatasync", sync, raising=False)
    with Journal(path) as journal:
        journal.append(RECORDS[0])
        journal.start_commit()
        assert begun.wait(30)
        journal.append(RECORDS[1])
        journal.start_commit()  # does not wait either
        journal.flush()
        assert list(read(path)) == RECORDS[:2]
        may_end.set()


def test_an_error_of_the_disk_reaches_the_next_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError("the disk is broken")

    with Journal(path) as journal:
        journal.append(RECORDS[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail, raising=False)
            journal.start_commit()
            with pytest.raises(OSError, match="the disk is broken"):
                journal.commit()


@given(cut=st.integers(0, 1200))
def test_a_journal_that_is_cut_anywhere_keeps_the_records_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    write(path, RECORDS)
    whole = path.read_bytes()
    os.truncate(path, min(cut, len(whole)))
    kept = whole[:cut].count(b"\n")
    assert list(read(path)) == RECORDS[:kept]
    write(path, [{"later": 1}])
    assert list(read(path)) == [*RECORDS[:kept], {"later": 1}]


def test_a_damaged_line_is_skipped_with_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, RECORDS)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b"loss", b"lost")
    path.write_bytes(b"".join(lines))
    assert list(read(path)) == RECORDS[:7] + RECORDS[8:]
    assert "skipped line 8" in caplog.text


def test_compaction_replaces_the_records_and_appending_continues(path: Path) -> None:
    with Journal(path) as journal:
        for record in RECORDS:
            journal.append(record)
        before = journal.size
        journal.compact(RECORDS[-2:])
        assert journal.size < before
        journal.append({"later": 1})
    assert list(read(path)) == [*RECORDS[-2:], {"later": 1}]
    assert sorted(each.name for each in path.parent.iterdir()) == ["journal.jsonl", "journal.lock"]


def test_rotation_keeps_the_old_records_under_another_name(path: Path) -> None:
    with Journal(path) as journal:
        journal.rotate()  # nothing to keep
        for record in RECORDS[:2]:
            journal.append(record)
            journal.rotate()
        journal.append(RECORDS[2])
    assert list(read(path)) == [RECORDS[2]]
    assert [list(read(path.with_name(f"journal-{number}.jsonl"))) for number in (1, 2)] == [
        [RECORDS[0]],
        [RECORDS[1]],
    ]


def test_a_second_writer_is_refused_and_told_the_process_of_the_first(path: Path) -> None:
    with Journal(path), pytest.raises(TuneError, match=rf"another program \(process {os.getpid()}\)"):
        Journal(path)
    Journal(path).close()
