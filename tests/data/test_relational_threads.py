"""Plans of operations on whole columns run in threads of this process only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate
from skate.data import DataContext
from skate.data._exec.drivers.threads import ThreadDriver
from skate.data._plan import nodes, relational
from skate.data._plan.optimizer import optimize
from skate.data.aggregate import AggregateFn, Mean
from skate.data.datasource import Datasource
from skate.data.exceptions import FileReadError
from skate.data.expressions import DataType, col, udf

ROWS = 4000


@pytest.fixture(autouse=True)
def nothing_is_small(settings: DataContext) -> None:
    settings.small_plan_bytes = 0


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Four files with rows in no order."""
    numbers = np.random.default_rng(3).permutation(ROWS)
    for part in range(4):
        mine = numbers[part::4]
        table = pa.table({"n": mine, "k": mine % 7, "s": [f"w{n % 13}" for n in mine]})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=300)
    return str(tmp_path)


def runs_on_threads(dataset: Any) -> bool:
    return relational.runs_on_threads(optimize(dataset._node), dataset.context)


class TestWhatRunsOnThreads:
    def test_sorting_grouping_joining_and_shuffling_files(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder)
        assert [row["n"] for row in ds.sort("n").take_all()] == list(range(ROWS))
        assert [row["mean(n)"] for row in ds.groupby("k").mean("n").take_all()][:2] == [
            np.mean(range(0, ROWS, 7)),
            np.mean(range(1, ROWS, 7)),
        ]
        joined = ds.join(skate.data.from_arrow(pa.table({"n": range(10)})), "inner", 2, on=("n",))
        assert sorted(row["n"] for row in joined.take_all()) == list(range(10))
        assert sorted(row["n"] for row in ds.random_shuffle().take_all()) == list(range(ROWS))
        assert not skate.is_initialized()

    def test_statistics_tell_that_it_was_this_process(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder).sort("n").materialize()
        assert ds._last is not None
        assert {pid for each in ds._last.stats.values() for pid in each.processes} == {os.getpid()}
        assert "Sort: 1 tasks executed" in ds.stats()

    def test_explain_says_so(self, folder: str, capsys: pytest.CaptureFixture[str]) -> None:
        skate.data.read_parquet(folder).filter(expr=col("n") < 5).sort("n").explain()
        told = capsys.readouterr().out
        assert "runs on threads of this process" in told
        assert "ReadParquet[filter: col('n') < 5]" in told

    def test_expressions_and_all_that_keeps_whole_columns(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder)
        assert runs_on_threads(ds.with_column("m", col("n") * 2).filter(expr=col("m") > 3).sort("m"))
        assert runs_on_threads(ds.union(ds).sort("n").limit(3).select_columns(["n"]))
        assert runs_on_threads(skate.data.from_arrow(pa.table({"x": [2, 1]})).sort("x"))


class TestWhatDoesNot:
    def test_what_streams(self, folder: str) -> None:
        assert not runs_on_threads(skate.data.read_parquet(folder).filter(expr=col("n") < 5))

    def test_functions_of_the_users(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder)

        @udf(return_dtype=DataType.int64())
        def twice(values: pa.Array) -> Any:
            return values

        total = AggregateFn(
            init=lambda key: 0, accumulate_row=lambda a, row: a + 1, merge=lambda a, b: a + b, name="total"
        )
        assert not runs_on_threads(ds.map(lambda row: row).sort("n"))
        assert not runs_on_threads(ds.with_column("m", twice(col("n"))).sort("m"))
        assert runs_on_threads(ds.groupby("k").aggregate(Mean("n")))
        assert not runs_on_threads(ds.groupby("k").aggregate(Mean("n"), total))

    def test_a_source_of_the_users(self) -> None:
        class Mine(Datasource):
            def estimate_inmemory_data_size(self) -> int:
                return 1

        assert not runs_on_threads(skate.data.read_datasource(Mine()).sort("n"))

    @pytest.mark.parametrize("setting", ["relational_plan_bytes", "memory_budget"])
    def test_more_than_the_settings_allow(self, folder: str, settings: DataContext, setting: str) -> None:
        setattr(settings, setting, 1000)
        assert not runs_on_threads(skate.data.read_parquet(folder).sort("n"))

    def test_more_than_the_limit_of_the_object_store(self, folder: str, settings: DataContext) -> None:
        settings.execution_options.resource_limits.object_store_memory = 1000
        assert not runs_on_threads(skate.data.read_parquet(folder).sort("n"))


# Lists and long strings that repeat are encoded as a few bytes: nothing in a footer tells how large they become.
@pytest.mark.parametrize(
    "same", [[[7] * 1000] * 400, ["a", "z", *["m" * 5000] * 398]], ids=["read by Arrow", "read by Polars"]
)
def test_a_source_that_turns_out_to_be_larger_goes_on_in_workers(
    tmp_path: Path, settings: DataContext, same: list[Any]
) -> None:
    table = pa.table({"n": range(400), "same": same})
    for part in range(4):
        pq.write_table(table.slice(part * 100, 100), tmp_path / f"{part}.parquet")
    settings.relational_plan_bytes = 100_000
    ds = skate.data.read_parquet(str(tmp_path)).sort("n", descending=True)
    assert runs_on_threads(ds)
    found = ds.take_all()
    assert [row["n"] for row in found] == list(range(400))[::-1]
    assert [row["same"] for row in found] == same[::-1]
    last = ds._last
    assert last is not None
    assert {pid for each in last.stats.values() for pid in each.processes} > {os.getpid()}
    skate.shutdown()


class TestReadingAtOnce:
    """Plain columns of equal files are decoded by Polars, all at once; everything else as ever."""

    def is_read_at_once(self, dataset: Any) -> bool:
        plan = relational.with_fast_readers(optimize(dataset._node))
        return all(each.source.reads_at_once for each in plan.walk() if isinstance(each, nodes.Read))

    def test_plain_columns_where_all_rows_are_gathered(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder)
        assert self.is_read_at_once(ds.sort("n"))
        assert self.is_read_at_once(ds.groupby("k").mean("n"))
        assert not self.is_read_at_once(ds.limit(3).sort("n")), "a few rows are enough"
        assert not self.is_read_at_once(ds.filter(expr=col("n") < 3).sort("n")), "row groups can be left out"

    def test_not_what_comes_from_paths(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder, include_paths=True).sort("n")
        assert not self.is_read_at_once(ds)
        assert {Path(row["path"]).name for row in ds.take_all()} == {f"{part}.parquet" for part in range(4)}

    @pytest.mark.parametrize(
        "odd",
        [
            pa.array([1, 2], pa.timestamp("ns", "Europe/Rome")),
            pa.array([[1], []]),
            pa.array(["a", "b"]).dictionary_encode(),
            pa.array([1, 2], pa.decimal128(5, 1)),
        ],
        ids=str,
    )
    def test_not_types_that_polars_would_change(self, tmp_path: Path, odd: pa.Array) -> None:
        pq.write_table(pa.table({"n": [2, 1], "odd": odd}), tmp_path / "odd.parquet")
        ds = skate.data.read_parquet(str(tmp_path)).sort("n")
        assert not self.is_read_at_once(ds)
        (found,) = ds.iter_batches(batch_size=None, batch_format="pyarrow")
        assert found.column("odd").to_pylist() == odd.to_pylist()[::-1]
        assert found.schema.field("odd").type == skate.data.read_parquet(str(tmp_path)).schema().types[1]

    def test_not_files_that_differ(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"n": pa.array([3], pa.int32())}), tmp_path / "0.parquet")
        pq.write_table(pa.table({"n": pa.array([1], pa.int64()), "more": ["x"]}), tmp_path / "1.parquet")
        ds = skate.data.read_parquet(str(tmp_path)).sort("n")
        assert not self.is_read_at_once(ds)
        assert ds.take_all() == [{"n": 1, "more": "x"}, {"n": 3, "more": None}]

    def test_files_keep_their_order(self, folder: str) -> None:
        """Rows with equal keys stay as they were, file by file."""
        ds = skate.data.read_parquet(folder)
        expected = [row["n"] for row in ds.take_all() if row["k"] == 0]
        assert [row["n"] for row in ds.sort("k").take(len(expected))] == expected
        skate.shutdown()


class TestErrors:
    def test_a_corrupt_file_is_named_as_elsewhere(self, folder: str, settings: DataContext) -> None:
        """The footer is whole, the pages are not."""
        bad = Path(folder) / "2.parquet"
        content = bytearray(bad.read_bytes())
        content[4:600] = b"\xff" * 596
        bad.write_bytes(content)

        def failure() -> str:
            with pytest.raises(FileReadError, match=r"2\.parquet") as raised:
                skate.data.read_parquet(folder).sort("n").take_all()
            return str(raised.value).splitlines()[-1]

        on_threads = failure()
        settings.small_plan_bytes = 1 << 40
        assert failure() == on_threads

    def test_a_file_that_is_gone_is_named(self, folder: str) -> None:
        ds = skate.data.read_parquet(folder).sort("n")
        ds.schema()
        (Path(folder) / "1.parquet").unlink()
        with pytest.raises(FileNotFoundError, match=r"1\.parquet"):
            ds.take_all()

    def test_a_missing_column_is_named(self, folder: str) -> None:
        with pytest.raises(ValueError, match="'nowhere'"):
            skate.data.read_parquet(folder).sort("nowhere").take_all()


class TestEnding:
    def test_whoever_takes_only_the_first_rows_leaves_no_thread(self, folder: str) -> None:
        batches = iter(skate.data.read_parquet(folder).sort("n").iter_batches(batch_size=10))
        assert next(batches)["n"][0] == 0
        batches.close()  # type: ignore[attr-defined]
        assert not [thread for thread in threading.enumerate() if "relational" in thread.name]

    def test_an_execution_can_be_closed_while_threads_work(self, folder: str) -> None:
        execution = skate.data.read_parquet(folder).sort("n")._run()
        execution._start()
        assert isinstance(execution._driver, ThreadDriver)
        execution.close()
        assert not [thread for thread in threading.enumerate() if "relational" in thread.name]

    def test_a_consumer_that_is_slow_holds_the_threads_back(self, folder: str, settings: DataContext) -> None:
        """A join with a small side streams by: what nobody has taken does not pile up."""
        settings.target_max_block_size = 1000
        small = skate.data.from_arrow(pa.table({"k": range(7), "name": list("abcdefg")}))
        many = skate.data.read_parquet(folder).filter(expr=col("n") >= 0)  # which is not read at once
        execution = many.join(small, "inner", 2, on=("k",))._run()
        execution._start()
        driver = execution._driver
        assert isinstance(driver, ThreadDriver)
        driver.scheduler.limits.bytes = 5000
        rows = total = most = 0
        try:
            while (item := execution._next()) is not None:
                rows, total = rows + item.rows, total + item.bytes
                with driver._changed:
                    most = max(most, driver.scheduler.used)
        finally:
            execution.close()
        assert rows == ROWS
        assert most < total / 4

    def test_interrupting_the_program_ends_it(self, folder: str) -> None:
        program = f"""
import signal, skate
from skate.data import DataContext
from skate.data._exec.drivers import threads
DataContext.get_current().small_plan_bytes = 0
make_next = threads.ThreadDriver._make_next

def interrupted(self, mine):
    signal.raise_signal(signal.SIGINT)  # as if the user pressed Ctrl-C now
    return make_next(self, mine)

threads.ThreadDriver._make_next = interrupted
skate.data.read_parquet({folder!r}).sort("n").take_all()
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == -signal.SIGINT, done.stderr
        assert "KeyboardInterrupt" in done.stderr


def test_a_worker_uses_as_many_threads_as_it_has_processors() -> None:
    class ThreadsOfPolars:
        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            import polars as pl

            return {"threads": [pl.thread_pool_size()]}

    with skate.init(engine="local", num_cpus=2):
        for cpus in (1, 2):
            ds = skate.data.range(1).map_batches(ThreadsOfPolars, concurrency=1, num_cpus=cpus)
            assert ds.take_all() == [{"threads": cpus}]


def test_what_is_materialized_is_in_the_object_store_if_there_is_one(folder: str) -> None:
    large = skate.data.read_parquet([folder] * 100)
    with skate.init(engine="local", num_cpus=2):
        kept = large.sort("n").materialize()
        assert all(isinstance(item.block, skate.ObjectRef) for item in kept._node.items)  # type: ignore[attr-defined]
        assert [row["n"] for row in kept.take(101)] == [0] * 100 + [1]
        # Read from there, by threads of this process again.
        assert kept.sort("n", descending=True).take(1)[0]["n"] == ROWS - 1
