"""Plans with more data than memory: block sizes, memory of workers, and spilling to disk."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext, ExecutionResources
from skate.data._exec.drivers.workers import WorkerDriver
from skate.data._exec.items import fetch_rows
from skate.data._execution import Execution
from skate.exceptions import OutOfDiskError
from tests.plugins.sessions import Start

MIB = 2**20

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def on_workers(settings: DataContext, engine: str) -> None:
    if engine == "inline":
        pytest.skip("there are no workers")
    settings.small_plan_bytes = 0
    settings.relational_plan_bytes = 0


@pytest.fixture
def documents(tmp_path: Path) -> str:
    """Three files whose rows are 100 MB each in memory, and next to nothing on disk."""
    table = pa.table(
        {"id": np.arange(12_500), "values": pa.FixedSizeListArray.from_arrays(np.zeros(12_500_000), 1000)}
    )
    for place in range(3):
        pq.write_table(table, tmp_path / f"{place}.parquet", row_group_size=500, compression="zstd")
    return str(tmp_path)


def doubled(batch: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    return batch.set_column(0, "id", pc.multiply(batch["id"], 2))


def test_a_slow_consumer_keeps_300_mb_within_a_budget_of_60(documents: str, settings: DataContext) -> None:
    settings.memory_budget = 60 * MIB
    settings.target_max_block_size = 4 * MIB
    ds = skate.data.read_parquet(documents).map_batches(doubled, batch_format="pyarrow", batch_size=None)
    run = Execution(ds._node, settings)
    rows = taken = most = 0
    for item in run:
        rows += fetch_rows(item).num_rows
        taken += item.bytes
        made = sum(stats.bytes for stats in run.stats.values())
        most = max(most, run.scheduler.used, made - taken)
        until_nothing_goes_on(run)
    assert rows == 3 * 12_500
    assert 40 * MIB < most < 80 * MIB, "within the budget and a block for each task, and no small part of it"


def until_nothing_goes_on(run: Execution) -> None:
    """Wait until everybody has made all that may be made while the consumer takes nothing."""
    driver = run._driver
    assert isinstance(driver, WorkerDriver)
    with driver._changed:
        driver._changed.wait_for(
            lambda: (
                not any(
                    task.is_active for operator in driver.scheduler.operators for task in operator.running
                )
            )
        )


class Itself:
    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch


@pytest.mark.parametrize("how", [{"num_cpus": 0.5}, {"num_cpus": 1, "memory": 1}, {"concurrency": 1}])
def test_a_step_with_tasks_of_its_own_runs_while_the_one_before_it_is_held_back(
    how: dict[str, Any], settings: DataContext
) -> None:
    settings.memory_budget = 8 * MIB
    settings.target_max_block_size = MIB

    def many(batch: dict[str, Any]) -> Any:
        for _ in range(32):
            yield {"x": np.zeros((1, 2**17))}

    step = Itself if "concurrency" in how else lambda batch: batch
    ds = skate.data.range(4, override_num_blocks=4).map_batches(many, batch_size=1).map_batches(step, **how)
    run = Execution(ds._node, settings)
    rows = most = 0
    for item in run:
        rows += item.rows
        most = max(most, run.scheduler.used)
    assert rows == 4 * 32
    assert most < 16 * MIB


def test_workers_that_keep_memory_are_not_given_more_to_do_at_a_time(settings: DataContext) -> None:
    settings.execution_options.resource_limits = ExecutionResources.for_limits(memory=100 * MIB)
    kept: list[Any] = []  # in each worker

    def hoard(batch: dict[str, Any]) -> dict[str, Any]:
        begun = time.monotonic()
        if not kept:
            kept.append(np.ones(10 * 2**20))
        for _ in range(20):
            kept[0] += 1
        return {"begun": [begun], "ended": [time.monotonic()]}

    ds = skate.data.range(12, override_num_blocks=12).map_batches(hoard)
    rows = ds.take_all()
    assert len(rows) == 12
    # The first ones were started before anybody knew.
    later = sorted((row["begun"], row["ended"]) for row in rows)[int(skate.cluster_resources()["CPU"]) :]
    for (_, ended), (begun, _) in itertools.pairwise(later):
        assert ended <= begun, "two at a time"


def test_a_disk_that_is_full_while_a_sort_spills_is_named(
    fresh: Start,
    settings: DataContext,
) -> None:
    fresh(num_cpus=2, object_store_memory=64 * MIB)
    settings.partition_bytes = 16 * MIB
    settings.target_max_block_size = MIB
    spill = Path(skate.get_runtime_context().get_session_dir()) / "spill"
    spill.rmdir()
    spill.touch()  # nothing can be written there
    ds = skate.data.range(200, override_num_blocks=100).map_batches(
        lambda batch: {"key": -batch["id"], "x": np.zeros((len(batch["id"]), 2**17))}
    )
    with pytest.raises(OutOfDiskError, match=r"could not be moved to disk: .*Not a directory"):
        ds.sort("key").take(1)
    assert ds.limit(3).count() == 3, "the session goes on"
