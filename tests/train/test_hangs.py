"""Workers that hang: they are detected, named with their current line, and restarted."""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skate import train
from skate.train import FailureConfig, Result, RunConfig, WorkerGroupError
from skate.train._failures.causes import Failure, is_collective_timeout
from skate.train._failures.errors import HungWorkerError
from skate.train._workers import supervision
from skate.train.collective import barrier
from tests.train.checkpoints import next_step, write_checkpoint
from tests.train.processes import die, stop, wait_for

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]
Fit = Callable[..., Result]


@pytest.fixture
def patient(tmp_path: Path) -> Callable[..., RunConfig]:
    """Make settings of a run that hangs after a short while."""

    def make(*, failures: int = 0, seconds: float = 2.0) -> RunConfig:
        return RunConfig(
            name="run",
            storage_path=str(tmp_path),
            failure_config=FailureConfig(max_failures=failures, hang_timeout_s=seconds),
        )

    return make


def hold_the_lock() -> None:
    ctypes.PyDLL(None).sleep(1000)  # a PyDLL's functions keep Python's lock, unlike a CDLL's


def loop() -> None:
    while True:
        pass


def test_a_worker_that_others_wait_for_is_named_with_its_line(
    fit: Fit, patient: Callable[..., RunConfig]
) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            loop()
        barrier()

    with pytest.raises(WorkerGroupError, match="rank 1 failed") as raised:
        fit(function, 3, run=patient())
    assert isinstance(raised.value.worker_failures[1], HungWorkerError)
    assert list(raised.value.worker_failures) == [1]
    said = str(raised.value)
    assert "it hangs: its training function has been silent for" in said
    assert "test_hangs.py, line " in said
    assert "in loop" in said
    assert "rank 0 waits in" in said
    assert "rank 2 waits in" in said
    assert "in function: barrier()" in said


@pytest.mark.parametrize("how", [stop, hold_the_lock])
def test_a_worker_that_does_not_answer_is_named(
    fit: Fit, patient: Callable[..., RunConfig], how: Callable[[], None]
) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 0:
            how()
        barrier()

    with pytest.raises(WorkerGroupError, match="rank 0 failed") as raised:
        fit(function, run=patient())
    assert list(raised.value.worker_failures) == [0]
    said = "is stopped (SIGSTOP)" if how is stop else "native code that holds Python's lock"
    assert said in str(raised.value)


def test_if_all_hang_all_are_named(fit: Fit, patient: Callable[..., RunConfig]) -> None:
    with pytest.raises(WorkerGroupError) as raised:
        fit(lambda: time.sleep(1000), run=patient())
    assert set(raised.value.worker_failures) == {0, 1}
    assert "time.sleep(1000)" in str(raised.value)


def test_workers_that_wait_for_one_that_has_ended_hang(fit: Fit, patient: Callable[..., RunConfig]) -> None:
    def function() -> None:
        if train.get_context().get_world_rank() == 0:
            barrier()

    with pytest.raises(WorkerGroupError, match="rank 0 failed") as raised:
        fit(function, run=patient())
    assert "it waits for rank 1, whose training function has returned" in str(raised.value)
    assert "in function: barrier()" in str(raised.value)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look soon, and often, for ranks that wait for one that has returned."""
    monkeypatch.setattr(supervision, "_RECHECK_AFTER_S", 0.3)
    monkeypatch.setattr(supervision, "_BLOCKED_AFTER_S", 1.0)


def wait_at_a_barrier_of_skate() -> None:
    barrier()


def wait_at_a_barrier_of_torch() -> None:
    import torch.distributed as dist

    dist.barrier()


def wait_in_a_backward_pass() -> None:
    import torch

    from skate.train.torch import prepare_model

    model = prepare_model(torch.nn.Linear(2, 1))  # all ranks have to come here
    if train.get_context().get_world_rank() == 0:
        model(torch.ones(1, 2)).sum().backward()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("wait", "by_all"),
    [
        (wait_at_a_barrier_of_skate, False),
        (wait_at_a_barrier_of_torch, False),
        (wait_in_a_backward_pass, True),
    ],
)
def test_without_a_limit_those_that_wait_for_a_rank_that_has_returned_fail_and_both_are_named(
    fit_with: Callable[..., Result], wait: Callable[[], None], by_all: bool
) -> None:
    pytest.importorskip("torch")
    from skate.train.torch import TorchTrainer

    def function() -> None:
        if by_all or train.get_context().get_world_rank() == 0:
            wait()

    with pytest.raises(WorkerGroupError, match="rank 0 failed") as raised:
        fit_with(TorchTrainer, function)
    assert list(raised.value.worker_failures) == [0]
    assert isinstance(raised.value.worker_failures[0], HungWorkerError)
    assert "it waits for rank 1, whose training function has returned" in str(raised.value)
    assert f"in {wait.__name__}" in str(raised.value)


@pytest.mark.usefixtures("quick")
def test_a_rank_may_return_while_another_computes_and_others_wait_for_that_one(
    fit_with: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = pytest.importorskip("torch.distributed")
    import torch

    from skate.train.torch import TorchTrainer

    flag = tmp_path / "flag"
    is_blocked = supervision.Supervisor._is_blocked

    def look(self: supervision.Supervisor, rank: int, now: float) -> bool:
        if rank == 0 and is_blocked(self, rank, now):  # for so long that all would fail if rank 2 waited too
            flag.touch()
        return is_blocked(self, rank, now)

    monkeypatch.setattr(supervision.Supervisor, "_is_blocked", look)

    def function() -> None:
        rank = train.get_context().get_world_rank()
        if rank == 2:
            wait_for(flag)
        mine = torch.tensor([float(rank)])
        found = [torch.zeros(1) for _ in range(3)] if rank == 0 else None
        dist.gather(mine, found)
        if rank == 0:
            train.report({"sum": sum(each.item() for each in found or ())})

    assert fit_with(TorchTrainer, function, 3).metrics == {"sum": 3.0}


def test_a_run_goes_on_after_a_worker_has_hung(fit: Fit, patient: Callable[..., RunConfig]) -> None:
    def function() -> None:
        first = next_step(train.get_checkpoint())
        for step in range(first, 4):
            barrier()
            if step == 2 and first == 0 and train.get_context().get_world_rank() == 1:
                stop()
            train.report({"step": step, "began": first}, checkpoint=write_checkpoint(step=str(step)))

    assert fit(function, run=patient(failures=1)).metrics == {"step": 3, "began": 2}


def test_reports_keep_a_run_from_hanging(fit: Fit, patient: Callable[..., RunConfig]) -> None:
    def function() -> None:
        for step in range(10):
            time.sleep(0.25)  # together longer than the limit, which is what this is about
            train.report({"step": step})

    assert fit(function, 1, run=patient()).metrics == {"step": 9}


def test_a_collective_operation_of_torch_that_times_out_names_who_did_not_come(
    fit_with: Callable[..., Result],
) -> None:
    dist = pytest.importorskip("torch.distributed")
    import torch

    from skate.train.torch import TorchConfig, TorchTrainer

    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            loop()
        dist.all_reduce(torch.ones(1))

    with pytest.raises(WorkerGroupError, match="rank 1 failed") as raised:
        fit_with(TorchTrainer, function, torch_config=TorchConfig(timeout_s=2))
    errors = raised.value.worker_failures
    assert isinstance(errors[1], HungWorkerError)
    assert is_collective_timeout(Failure(errors[0], ""))
    assert "in loop" in str(raised.value)
    assert "after it, and perhaps because of it:\n  rank 0: " in str(raised.value)


def test_without_a_limit_a_warning_says_who_is_waited_for(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervision, "_PROBE_AFTER_S", 0.3)
    flag = tmp_path / "flag"

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "ranks [0] wait for others, and rank 1 has been silent for" in record.getMessage():
                flag.touch()

    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            wait_for(flag)
        barrier()
        train.report({"warned": flag.exists()})

    handler = Heard()
    supervision.log.addHandler(handler)
    try:
        assert fit(function).metrics == {"warned": True}
    finally:
        supervision.log.removeHandler(handler)


def test_without_a_limit_a_process_that_does_not_answer_has_failed(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "_PROBE_AFTER_S", 0.3)
    monkeypatch.setenv("RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", "4")

    def function() -> None:
        if train.get_context().get_world_rank() == 1:
            stop()
        barrier()

    with pytest.raises(WorkerGroupError, match=r"(?s)rank 1 failed.*is stopped \(SIGSTOP\)"):
        fit(function)


def test_a_limit_is_a_time() -> None:
    with pytest.raises(ValueError, match="`hang_timeout_s` must be a positive number of seconds"):
        FailureConfig(hang_timeout_s=0)


def test_a_failing_start_of_a_worker_is_a_failure_of_that_worker(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    from skate.train.backend import Backend, BackendConfig

    scar = tmp_path / "scar"

    def die_once() -> None:
        if not scar.exists():
            scar.touch()
            die()

    class Dying(Backend):
        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            worker_group.execute_single(1, die_once)

    class Config(BackendConfig):
        backend_cls = Dying

    def function() -> None:
        train.report({"rank": train.get_context().get_world_rank()})

    assert fit(function, run=run_config(failures=1), backend_config=Config()).metrics == {"rank": 0}
    scar.unlink()
    with pytest.raises(WorkerGroupError, match="rank 1 failed"):
        fit(function, run=run_config("other"), backend_config=Config())
