"""Workers that die, and consumers that are slow."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skate
from skate.data import DataContext
from skate.data._exec.items import fetch_rows
from skate.data._execution import Execution

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


@pytest.fixture(autouse=True)
def on_workers(settings: DataContext, engine: str) -> None:
    if engine == "inline":
        pytest.skip("there are no workers to die")
    settings.small_plan_bytes = settings.relational_plan_bytes = 0


def die_once(marker: Path) -> None:
    """Kill this process, if nobody has done so before."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_block_of_a_worker_that_dies_is_done_again(tmp_path: Path) -> None:
    def fragile(batch: dict[str, Any]) -> dict[str, Any]:
        if 37 in batch["id"]:
            die_once(tmp_path / "died")
        return {"x": batch["id"] * 2}

    found = skate.data.range(100, override_num_blocks=10).map_batches(fragile).take_all()
    assert [row["x"] for row in found] == [2 * i for i in range(100)]
    assert (tmp_path / "died").exists()


def test_a_worker_that_dies_in_the_middle_of_its_blocks_repeats_none(
    tmp_path: Path, settings: DataContext
) -> None:
    settings.target_max_block_size = 8 * 50

    def fragile(batch: dict[str, Any]) -> dict[str, Any]:
        if 730 in batch["id"]:
            die_once(tmp_path / "died")
        return batch

    found = skate.data.range(1000, override_num_blocks=1).map_batches(fragile, batch_size=10).take_all()
    assert [row["id"] for row in found] == list(range(1000))
    assert (tmp_path / "died").exists()


def test_an_actor_that_dies_is_replaced(tmp_path: Path) -> None:
    class Fragile:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            if 37 in batch["id"]:
                die_once(tmp_path / "died")
            return {"x": batch["id"] * 2}

    found = skate.data.range(100, override_num_blocks=10).map_batches(Fragile, concurrency=2).take_all()
    assert [row["x"] for row in found] == [2 * i for i in range(100)]
    assert (tmp_path / "died").exists()


def test_a_worker_that_dies_while_sorting_is_no_loss(tmp_path: Path, settings: DataContext) -> None:
    settings.partition_bytes = 1000

    def fragile(group: dict[str, Any]) -> dict[str, Any]:
        if group["k"][0] == 3:
            die_once(tmp_path / "died")
        return {"k": group["k"][:1], "n": [len(group["k"])]}

    ds = skate.data.range(700, override_num_blocks=7).map(lambda row: {"k": row["id"] % 7})
    assert ds.groupby("k").map_groups(fragile).take_all() == [{"k": k, "n": 100} for k in range(7)]
    assert (tmp_path / "died").exists()


def test_a_slow_consumer_holds_the_reading_back(settings: DataContext) -> None:
    settings.memory_budget = 8 * 2**20
    settings.target_max_block_size = 2**20
    ds = skate.data.range(100, override_num_blocks=100).map_batches(
        lambda batch: {"x": np.zeros((len(batch["id"]), 2**17))}
    )
    run = Execution(ds._node, settings)
    items = iter(run)
    held = 0
    for _ in range(20):
        fetch_rows(next(items))
        held = max(held, run.scheduler.used)
    made = sum(each.rows for each in run.stats.values())
    items.close()
    assert made < 40, "nobody has asked for the rest"
    assert held < 16 * 2**20


def test_memory_does_not_grow_with_what_one_task_makes(settings: DataContext) -> None:
    settings.memory_budget = 4 * 2**20
    settings.target_max_block_size = 2**20

    def many(batch: dict[str, Any]) -> Any:
        for _ in range(64):
            yield {"x": np.zeros((1, 2**17))}

    run = Execution(skate.data.range(1).map_batches(many)._node, settings)
    held, rows = 0, 0
    for item in run:
        rows += item.rows
        held = max(held, run.scheduler.used)
    assert rows == 64
    assert held <= 6 * 2**20
