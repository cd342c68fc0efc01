"""Plans that begin in this process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext
from skate.data._exec.drivers import inprocess
from skate.data._exec.drivers.inprocess import saves_time
from skate.exceptions import RayTaskError
from skate.util.state import list_workers
from tests.conftest import LeakWatch

EVENT_TIMEOUT_S = 60.0  # seconds after which something is wrong


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def children_of(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children(recursive=True)}


def processes(dataset: Any) -> set[int]:
    return {row["pid"] for row in dataset.take_all()}


def test_a_small_plan_needs_no_session() -> None:
    assert processes(skate.data.range(5).map(lambda row: {"pid": os.getpid()})) == {os.getpid()}
    assert not skate.is_initialized()


def test_a_plan_whose_functions_take_long_goes_on_in_workers() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        busy(0.15)
        return {"id": row["id"], "pid": os.getpid()}

    found = skate.data.range(12, override_num_blocks=12).map(slow).take_all()
    assert [row["id"] for row in found] == list(range(12))
    assert len({row["pid"] for row in found}) > 1
    assert found[0]["pid"] == os.getpid()
    skate.shutdown()


def test_a_slow_plan_stays_in_one_thread_of_the_inline_engine() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        busy(0.15)
        return {"thread": threading.get_ident()}

    skate.init(engine="inline", num_cpus=16)
    found = skate.data.range(12, override_num_blocks=12).map(slow).take_all()
    assert {row["thread"] for row in found} == {threading.get_ident()}
    skate.shutdown()


def test_a_plan_that_is_nearly_done_is_finished_here() -> None:
    def slow(row: dict[str, Any]) -> dict[str, Any]:
        busy(0.3)
        return {"pid": os.getpid()}

    assert processes(skate.data.range(2, override_num_blocks=2).map(slow)) == {os.getpid()}
    assert not skate.is_initialized()


@pytest.fixture(scope="class")
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2):
        yield


@pytest.mark.usefixtures("session")
class TestInSession:
    def test_what_asks_for_resources_runs_in_workers(self) -> None:
        ds = skate.data.range(2).map(lambda row: {"pid": os.getpid()}, num_cpus=1)
        assert os.getpid() not in processes(ds)

    def test_a_plan_over_the_limit_runs_in_workers(self, settings: DataContext) -> None:
        settings.small_plan_bytes = (
            10  # 50 numbers have 400 bytes, and plans that only map may have 32 times the limit
        )
        assert os.getpid() not in processes(skate.data.range(50).map(lambda row: {"pid": os.getpid()}))

    def test_the_task_that_takes_long_ends_here_while_workers_run_the_others(self, tmp_path: Path) -> None:
        program, seen = os.getpid(), tmp_path / "a worker has begun"

        def slow(batch: dict[str, Any]) -> dict[str, Any]:
            busy(0.1)
            if os.getpid() != program:
                seen.touch()
            elif batch["id"][0] == 7:  # the last batch of the first block
                deadline = time.monotonic() + EVENT_TIMEOUT_S
                while not seen.exists():
                    assert time.monotonic() < deadline
                    busy(0.01)
            return {"id": batch["id"], "pid": [os.getpid()]}

        ds = skate.data.range(32, override_num_blocks=4).map_batches(slow, batch_size=1)
        found = ds.take_all()
        assert [row["id"] for row in found] == list(range(32))
        assert {row["pid"] for row in found[:8]} == {program}
        assert program not in {row["pid"] for row in found[8:]}

    def test_an_error_of_the_task_that_ends_here_is_that_of_a_worker(self) -> None:
        def fail_late(batch: dict[str, Any]) -> dict[str, Any]:
            busy(0.1)
            if batch["id"][0] == 7:
                raise KeyError("seven")
            return batch

        ds = skate.data.range(32, override_num_blocks=4).map_batches(fail_late, batch_size=1)
        with pytest.raises(KeyError, match="seven") as caught:
            ds.take_all()
        assert isinstance(caught.value, RayTaskError)

    def test_rows_that_are_enough_end_the_task_that_began_here(self) -> None:
        def slow(batch: dict[str, Any]) -> dict[str, Any]:
            busy(0.1)
            return batch

        ds = skate.data.range(64, override_num_blocks=4).map_batches(slow, batch_size=1).limit(20)
        assert [row["id"] for row in ds.take_all()] == list(range(20))


@pytest.mark.parametrize(
    ("worked", "tasks", "left", "cpus", "expected"),
    [
        (0.2, 1, 100, 16, False),  # it may be done soon
        (5.0, 1, 0, 16, False),
        (5.0, 1, 1, 16, False),  # one task is no faster on a worker
        (5.0, 1, 2, 1, False),  # one worker runs one task at a time
        (5.0, 1, 2, 2, True),
        (1.0, 2000, 9000, 2, False),  # to send a tiny task costs more than to run it
        (1.0, 100, 200, 2, True),
        (0.3, 0, 20, 2, True),
    ],
)
def test_workers_take_over_if_they_end_the_rest_sooner(
    worked: float, tasks: int, left: int, cpus: float, expected: bool
) -> None:
    assert saves_time(worked, tasks, left, cpus) is expected


def test_workers_of_a_session_take_over_sooner() -> None:
    assert not saves_time(0.2, 1, 100, 16)
    assert saves_time(0.2, 1, 100, 16, has_session=True)


@pytest.mark.parametrize("cpus", [2, 16])
def test_a_small_plan_starts_no_process(cpus: int) -> None:
    skate.init(num_cpus=cpus)
    try:
        skate.get(skate.remote(os.getpid).remote())  # a session starts its first worker in advance
        before = children_of(os.getpid())
        skate.data.range(10_000).map_batches(lambda batch: {"double": 2 * batch["id"]}).count()
        assert children_of(os.getpid()) == before
    finally:
        skate.shutdown()


@pytest.mark.usefixtures("settings")
def test_a_plan_starts_no_more_workers_than_it_has_blocks() -> None:
    skate.init(num_cpus=16)
    try:
        DataContext.get_current().small_plan_bytes = -1
        before = {row.worker_id for row in list_workers()}
        found = processes(skate.data.range(80, override_num_blocks=4).map(lambda row: {"pid": os.getpid()}))
        started = {row.worker_id for row in list_workers()} - before
        assert 1 <= len(found) <= len(started) <= 4
    finally:
        skate.shutdown()


def _orders(folder: Path, rows: int = 800_000) -> str:
    """Write files that are larger than a small plan."""
    for part in range(4):
        numbers = np.arange(part * rows // 4, (part + 1) * rows // 4)
        pq.write_table(pa.table({"id": numbers, "half": numbers / 2}), folder / f"{part}.parquet")
    return str(folder)


def test_a_short_stream_of_local_files_is_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "saves_time", lambda *_, **__: False)  # on a busy machine, it takes long
    skate.init(num_cpus=2)
    try:
        ds = skate.data.read_parquet(_orders(tmp_path)).map_batches(
            lambda batch: {"id": batch["id"] + 1, "pid": np.full(len(batch["id"]), os.getpid())}
        )
        found = list(ds.iter_batches(batch_size=50_000))
        assert np.array_equal(np.concatenate([batch["id"] for batch in found]), np.arange(1, 800_001))
        assert {pid for batch in found for pid in batch["pid"]} == {os.getpid()}
    finally:
        skate.shutdown()


def test_workers_take_over_during_a_call_that_takes_long(tmp_path: Path) -> None:
    program, seen = os.getpid(), tmp_path / "a worker has begun"
    files = tmp_path / "files"
    files.mkdir()

    def slow(batch: dict[str, Any]) -> dict[str, Any]:
        if os.getpid() != program:
            seen.touch()
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while not seen.exists():  # the first call ends after a worker has begun
            assert time.monotonic() < deadline
            busy(0.01)
        return {"id": batch["id"], "pid": np.full(len(batch["id"]), os.getpid())}

    skate.init(num_cpus=4)
    try:
        ds = skate.data.read_parquet(_orders(files)).map_batches(slow)
        found = list(ds.iter_batches(batch_size=None))
        assert np.array_equal(np.concatenate([batch["id"] for batch in found]), np.arange(800_000))
        assert found[0]["pid"][0] == program
        assert program not in {batch["pid"][0] for batch in found[1:]}
    finally:
        skate.shutdown()


def test_what_is_not_iterated_over_here_runs_in_workers(tmp_path: Path) -> None:
    skate.init(num_cpus=2)
    try:
        ds = skate.data.read_parquet(_orders(tmp_path)).map_batches(lambda batch: {"pid": [os.getpid()]})
        assert os.getpid() not in processes(ds.materialize())
    finally:
        skate.shutdown()


def test_importing_datasets_and_a_plan_over_numbers_import_no_pandas() -> None:
    program = (
        "import sys, skate.data\n"
        "rows = skate.data.range(10).map_batches(lambda batch: {'half': batch['id'] / 2})\n"
        "assert [batch['half'].sum() for batch in rows.iter_batches(batch_size=None)] == [22.5]\n"
        "assert 'pandas' not in sys.modules\n"
        "from skate.data.extensions import TensorArray\n"
        "assert 'pandas' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
