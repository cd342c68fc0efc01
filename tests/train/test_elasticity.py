"""Runs whose number of workers follows the free resources."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import skate
from skate import train
from skate.train import RunConfig, ScalingConfig, UserCallback
from skate.train._run.elasticity import count_fitting
from skate.train.collective import barrier
from skate.train.data_parallel_trainer import DataParallelTrainer
from tests.train.checkpoints import next_step, write_checkpoint

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


@skate.remote
class Holder:
    """Takes processors away from others."""

    def is_there(self) -> bool:
        return True


def leave(cpus: int) -> list[Any]:
    """Take all processors but some, wherever they are."""
    free = int(skate.available_resources()["CPU"])
    holders = [Holder.options(num_cpus=1).remote() for _ in range(free - cpus)]
    assert all(skate.get([holder.is_there.remote() for holder in holders]))
    return holders


def let_go(holders: list[Any]) -> None:
    for holder in holders:
        skate.kill(holder)


def grow(config: dict[str, Any]) -> None:
    """Take steps until there are as many workers as wanted, and a few more; fail at a step once."""
    context = train.get_context()
    first = next_step(train.get_checkpoint())
    last = None
    for step in range(first, 10_000):
        barrier()
        if step == config.get("fails_at") and context.get_world_size() == 2:
            raise ValueError("bad luck")
        time.sleep(0.02)  # a step takes its time
        mine = write_checkpoint(step=str(step)) if context.get_world_rank() == 0 else None
        train.report({"step": step, "world": context.get_world_size(), "began": first}, checkpoint=mine)
        if last is None and context.get_world_size() == config["wanted"]:
            last = step + 3
        if step == last:
            return


def fit(run: RunConfig, interval: float, **config: Any) -> train.Result:
    return DataParallelTrainer(
        grow,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=interval),
        run_config=run,
    ).fit()


def rows(result: train.Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = result.rank_metrics().query("rank == 0").to_dict("records")
    return found


def test_a_run_grows_when_there_is_room_and_loses_no_checkpoint(run_config: Callable[..., RunConfig]) -> None:
    holders = leave(1)

    class LetGo(UserCallback):
        def after_report(self, run_context: Any, metrics: list[Any], checkpoint: Any) -> None:
            if metrics[0]["step"] == 3:
                let_go(holders)

    result = fit(run_config(callbacks=[LetGo()]), 0.1, wanted=2)
    history = rows(result)
    assert [row["world"] for row in history] == sorted(row["world"] for row in history)
    grown = next(row for row in history if row["world"] == 2)
    checkpoints = [metrics["step"] for _, metrics in result.best_checkpoints or []]
    # Each step has its checkpoint, and was done once by the checkpoints' account; the larger group began after one.
    assert checkpoints == list(range(result.metrics["step"] + 1))  # type: ignore[index]
    assert grown["began"] == grown["step"] > 3
    assert result._record is not None
    assert result._record.failures == 0


def test_a_run_goes_on_with_fewer_workers_after_a_failure(run_config: Callable[..., RunConfig]) -> None:
    held: list[Any] = []

    class TakeAway(UserCallback):
        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            held.extend(leave(1))

    result = fit(run_config(failures=1, callbacks=[TakeAway()]), 60.0, wanted=1, fails_at=4)
    assert {row["world"] for row in rows(result) if row["step"] < 4} == {2}
    assert {row["world"] for row in rows(result) if row["step"] > 4} == {1}
    assert [metrics["step"] for _, metrics in result.best_checkpoints or []] == list(
        range(result.metrics["step"] + 1)  # type: ignore[index]
    )
    let_go(held)


def test_a_run_does_not_grow_beyond_its_most(run_config: Callable[..., RunConfig]) -> None:
    result = fit(run_config(), 0.01, wanted=2)
    assert {row["world"] for row in rows(result)} == {2}
    assert {row["began"] for row in rows(result)} == {0}


def test_the_scarcest_resource_decides_how_many_fit() -> None:
    scaling = ScalingConfig(num_workers=(1, 10), resources_per_worker={"CPU": 1, "licence": 0.5})
    assert count_fitting(scaling, {"CPU": 8, "licence": 2}) == 4
    assert count_fitting(scaling, {"CPU": 80, "licence": 20}) == 10
    assert count_fitting(scaling, {"CPU": 8}) == 0
