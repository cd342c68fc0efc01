"""Records of runs: their content, when they are written, how they are read, and failures."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skate.util import _run_records, _session
from skate.util._run_records import RunRecord, as_plain, read_run, read_runs, recording

FULL = Path("/dev/full")  # whatever is written there meets a full disk
LATER = 3600.0


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pretend that this process has a session whose folder is the test's."""
    monkeypatch.setattr(_session, "session_folder", lambda: str(tmp_path))
    monkeypatch.setattr(_session, "on_shutdown", lambda callback: None)
    yield tmp_path
    _run_records._publisher.stop()


def summary(text: str = "half done", **more: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"summary": text, **more}


def publish(record: RunRecord) -> None:
    """Write a record now, as its thread does when it is due."""
    record.publish_if_due(time.monotonic() + LATER)


def rewrite(folder: Path, record: RunRecord, **changes: Any) -> None:
    """Change the row of a record."""
    path = folder / "runs" / f"{record.id}.jsonl"
    row, details = path.read_text().splitlines()
    path.write_text(f"{json.dumps({**json.loads(row), **changes})}\n{details}\n")


def test_a_run_can_be_read_while_it_goes_on_and_when_it_has_ended(session: Path) -> None:
    record = RunRecord("train", "mnist", summary(workers=[0]))
    publish(record)
    [row] = read_runs(session)
    assert row | {"started": 0} == {
        "id": record.id,
        "kind": "train",
        "name": "mnist",
        "status": "RUNNING",
        "started": 0,
        "ended": None,
        "pid": os.getpid(),
        "summary": "half done",
        "error": None,
    }
    assert read_run(session, record.id) == {**row, "workers": [0]}
    record.close("FINISHED")
    [row] = read_runs(session)
    assert row["status"] == "FINISHED"
    assert row["started"] <= row["ended"] <= time.time()


def test_a_thread_writes_the_record_of_a_run_that_does_nothing_itself(session: Path) -> None:
    asked = threading.Event()

    def describe() -> dict[str, Any]:
        asked.set()
        return {}

    record = RunRecord("tune", "search", describe)
    assert asked.wait(30)
    record.close("FINISHED")
    assert [row["id"] for row in read_runs(session)] == [record.id]


def test_a_short_run_is_recorded_by_its_end_or_not_at_all(session: Path) -> None:
    RunRecord("data", "glance", summary(), keep_short=False).close("FINISHED")
    assert read_runs(session) == []
    RunRecord("tune", "search", summary()).close("FINISHED")
    assert [row["name"] for row in read_runs(session)] == ["search"]


def test_a_run_is_written_at_most_once_a_second(session: Path) -> None:
    calls: list[int] = []

    def describe() -> dict[str, Any]:
        calls.append(1)
        return {"rows": len(calls)}

    record = RunRecord("data", "read", describe)
    now = time.monotonic() + LATER
    for moment, expected in ((now, 1), (now + 0.9, 1), (now + 1.1, 2)):
        record.publish_if_due(moment)
        assert read_run(session, record.id)["rows"] == expected  # type: ignore[index]


def test_a_run_whose_description_takes_long_is_written_less_often(session: Path) -> None:
    texts = iter("abc")
    record = RunRecord("tune", "search", lambda: {"summary": next(texts)})
    begun = time.monotonic() - 2.0  # so writing takes two seconds
    record._due = begun
    record.publish_if_due(begun)
    record.publish_if_due(begun + 90)
    assert read_runs(session)[0]["summary"] == "a"
    record.publish_if_due(begun + 110)
    assert read_runs(session)[0]["summary"] == "b"


def test_a_run_that_has_not_changed_is_not_written_again(session: Path) -> None:
    record = RunRecord("data", "read", summary())
    publish(record)
    before = (session / "runs" / f"{record.id}.jsonl").stat().st_ino
    record.publish_if_due(time.monotonic() + 2 * LATER)
    assert (session / "runs" / f"{record.id}.jsonl").stat().st_ino == before


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("bad loss"), "FAILED"), (KeyboardInterrupt("bad loss"), "INTERRUPTED")]
)
def test_an_exception_ends_a_run_and_is_recorded(session: Path, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), recording("train", "mnist", summary()):
        raise error
    [row] = read_runs(session)
    assert (row["status"], row["error"]) == (status, "bad loss")


def test_nothing_is_recorded_without_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "session_folder", lambda: None)
    before = threading.active_count()
    with recording("train", "mnist", summary()):
        assert threading.active_count() == before
    record = RunRecord("data", "read", summary())
    assert not record.is_open
    publish(record)
    record.close("FINISHED")


def test_only_the_local_engine_has_records(any_engine: str) -> None:
    with recording("train", "mnist", summary()):
        pass
    folder = _session.session_folder()
    assert (folder is not None) is (any_engine == "local")
    if folder is not None:
        assert [row["name"] for row in read_runs(folder)] == ["mnist"]


def test_the_end_of_the_session_interrupts_its_runs_and_ends_the_thread(session: Path) -> None:
    record = RunRecord("data", "read", summary())
    thread = _run_records._publisher._thread
    assert thread is not None
    _run_records._publisher.stop()
    assert not thread.is_alive()
    assert not record.is_open
    assert [row["status"] for row in read_runs(session)] == ["INTERRUPTED"]


def test_a_forked_child_does_not_end_the_run_of_its_parent(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunRecord("data", "read", summary())
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        record.close("FINISHED")
    assert record.is_open


def test_a_run_that_ends_while_it_is_written_has_ended(session: Path) -> None:
    record: RunRecord

    def describe() -> dict[str, Any]:
        record.close("FINISHED")  # as a finalizer does that the garbage collector calls
        return {}

    record = RunRecord("data", "read", describe)
    publish(record)
    assert [row["status"] for row in read_runs(session)] == ["FINISHED"]


# ------------------------------------------------------------ faults


def test_a_full_disk_is_one_warning_and_never_ends_a_run(
    session: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (session / "runs").mkdir()
    records = [RunRecord("data", f"read {n}", summary()) for n in range(2)]
    for record in records:
        (session / "runs" / f".{record.id}.jsonl.new").symlink_to(FULL)
        publish(record)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "No space left" in caplog.text
    assert read_runs(session) == []
    for record in records:
        record.close("FINISHED")  # there is space again
    assert [row["status"] for row in read_runs(session)] == ["FINISHED", "FINISHED"]


def test_a_session_folder_that_was_deleted_is_no_warning(
    session: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = RunRecord("data", "read", summary())
    session.rmdir()
    record.close("FINISHED")
    assert caplog.records == []
    session.mkdir()


@pytest.mark.parametrize("defect", [lambda: 1 / 0, lambda: {"rows": float("nan")}, lambda: {"rows": {1, 2}}])
def test_a_description_that_fails_leaves_the_row(
    session: Path, defect: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    record = RunRecord("data", "read", defect)
    publish(record)
    record.close("FINISHED")
    assert [row["status"] for row in read_runs(session)] == ["FINISHED"]
    assert len(caplog.records) == 1


def test_a_container_that_changes_while_it_is_described_is_tried_again(
    session: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trials = {0: "a"}

    def describe() -> dict[str, Any]:
        for _ in trials:
            trials.setdefault(1, "b")
        return {"trials": len(trials)}

    record = RunRecord("tune", "search", describe)
    publish(record)
    assert read_runs(session) == []
    record.publish_if_due(time.monotonic() + 2 * LATER)
    assert read_run(session, record.id)["trials"] == 2  # type: ignore[index]
    assert caplog.records == []


def test_an_error_without_a_text_is_recorded_by_its_class(session: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    with pytest.raises(Mute), recording("train", "mnist", summary()):
        raise Mute
    assert [row["error"] for row in read_runs(session)] == ["Mute"]


def test_a_limit_of_threads_leaves_the_end_of_a_run(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with recording("train", "mnist", summary()):
        pass
    assert [row["status"] for row in read_runs(session)] == ["FINISHED"]


# ------------------------------------------------------------ readers


def test_a_run_whose_process_was_killed_is_interrupted(session: Path) -> None:
    program = (
        "import sys, time\n"
        "from skate.util import _run_records, _session\n"
        "_session.session_folder = lambda: sys.argv[1]\n"
        "_session.on_shutdown = lambda callback: None\n"
        "record = _run_records.RunRecord('train', 'mnist', dict)\n"
        "record.publish_if_due(time.monotonic() + 3600)\n"
        "print('written', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, session], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        assert [row["status"] for row in read_runs(session)] == ["RUNNING"]
        process.kill()
    [row] = read_runs(session)
    assert row["status"] == "INTERRUPTED"
    assert row["started"] <= row["ended"]


def test_a_process_that_has_the_pid_of_an_ended_one_is_another(session: Path) -> None:
    record = RunRecord("data", "read", summary())
    publish(record)
    rewrite(session, record, process="1")
    assert read_runs(session)[0]["status"] == "INTERRUPTED"
    assert "process" not in read_runs(session)[0]


def test_files_that_are_no_records_are_ignored(session: Path) -> None:
    record = RunRecord("data", "read", summary())
    publish(record)
    folder = session / "runs"
    good = (folder / f"{record.id}.jsonl").read_bytes()
    names = iter(f"{number:012x}" for number in range(100))
    for content in (b"", good[:40], b"\xff\xfe", b"[1]\n{}\n", b"{}\n{}\n", good, b"null", b'{"id":' * 5000):
        (folder / f"{next(names)}.jsonl").write_bytes(content)
    (folder / f"{next(names)}.jsonl").mkdir()
    (folder / "notes.jsonl").write_bytes(good)
    (folder / f".{record.id}.jsonl.new").write_bytes(good[:10])
    assert [row["id"] for row in read_runs(session)] == [record.id]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "cook"},
        {"status": 1},
        {"pid": "x"},
        {"started": None},
        {"started": float("nan")},
        {"name": 1},
    ],
)
def test_a_row_with_wrong_values_is_no_record(session: Path, changes: dict[str, Any]) -> None:
    record = RunRecord("data", "read", summary())
    publish(record)
    rewrite(session, record, **changes)
    assert read_runs(session) == []


def test_details_that_are_cut_off_leave_the_row(session: Path) -> None:
    record = RunRecord("data", "read", summary(rows=12))
    publish(record)
    path = session / "runs" / f"{record.id}.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert read_run(session, record.id) == read_runs(session)[0]


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "abc", "0" * 12, "0" * 11 + "\n"])
def test_a_run_that_does_not_exist_is_none(session: Path, name: str) -> None:
    assert read_run(session, name) is None
    assert read_runs(session / "elsewhere") == []


def test_the_oldest_ended_runs_make_room_for_new_ones(session: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run_records, "MAX_RECORDS", 10)
    running = RunRecord("train", "long", summary())
    publish(running)
    os.utime(session / "runs" / f"{running.id}.jsonl", (0, 0))
    for number in range(30):
        RunRecord("tune", str(number), summary()).close("FINISHED")
        assert len(read_runs(session)) <= 10
    names = [row["name"] for row in read_runs(session)]
    assert names == ["long", *map(str, range(30 - len(names) + 1, 30))]


# ------------------------------------------------------------ values


class Opaque:
    def __repr__(self) -> str:
        raise AssertionError("nothing of the user's is called")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1, 1),
        (True, True),
        (None, None),
        (0.5, 0.5),
        (float("inf"), None),
        ("text", "text"),
        ("x" * 500, "x" * 199 + "…"),
        (1 << 100, "an integer of 101 bits"),
        ([1, 2], "[1, 2]"),
        (Opaque(), "Opaque"),
        (Opaque, "Opaque"),
    ],
)
def test_values_become_plain(value: Any, plain: Any) -> None:
    assert as_plain(value) == plain


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
        max_leaves=8,
    )
)
def test_every_plain_value_is_short_json(value: Any) -> None:
    assert len(json.dumps(as_plain(value), allow_nan=False)) <= 12 * 200 + 2
