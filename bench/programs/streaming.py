"""A dataset that is larger than memory should be: read, changed batch by batch, and taken slowly, or at full speed."""

from __future__ import annotations

import importlib
import time
from typing import Any

import documents
import meter

job = meter.Job()
ray: Any = job.load()
data: Any = importlib.import_module(f"{job.system}.data")
data.DataContext.get_current().enable_progress_bars = False

SLOW = 6 * documents.GB
SLOW_SECONDS = 40.0  # at least, which is several times what the reading takes
FAST = 1 * documents.GB


def shouted(table: Any) -> Any:
    """Return the documents in capitals: as many bytes as there were."""
    import pyarrow.compute as pc

    return table.set_column(1, "text", pc.ascii_upper(table["text"]))


def pipeline(folder: str) -> Any:
    """Return the plan whose batches are taken."""
    return data.read_parquet(folder).map_batches(shouted, batch_format="pyarrow", zero_copy_batch=True)


def data_slow_consumer() -> float:
    """Take documents more slowly than they can be read. The harness looks at the memory meanwhile."""
    folder = documents.written(SLOW)
    print("READY", flush=True)
    rows = 0
    begun = time.perf_counter()
    pause = SLOW_SECONDS * 10_000 / documents.rows_of(SLOW)
    for batch in pipeline(folder).iter_batches(batch_size=10_000, batch_format="pyarrow"):
        rows += batch.num_rows
        time.sleep(pause)
    if rows != documents.rows_of(SLOW):
        raise RuntimeError(f"{rows} rows instead of {documents.rows_of(SLOW)}")
    return time.perf_counter() - begun


def data_fast_consumer() -> float:
    """Take documents as fast as they come; return the seconds in per cent of those without a budget."""
    folder = documents.written(FAST)
    context = data.DataContext.get_current()

    def run(budget: int | None) -> float:
        context.memory_budget = budget
        begun = time.perf_counter()
        rows = sum(
            len(batch) for batch in pipeline(folder).iter_batches(batch_size=10_000, batch_format="pyarrow")
        )
        if rows != documents.rows_of(FAST):
            raise RuntimeError(f"{rows} rows instead of {documents.rows_of(FAST)}")
        return time.perf_counter() - begun

    unlimited = 1 << 62
    run(unlimited)
    # Turn by turn, so that a slow moment of the machine hits both; the best of each is what it can do.
    pairs = [(run(None), run(unlimited)) for _ in range(4)]
    return 100 * min(with_budget for with_budget, _ in pairs) / min(without for _, without in pairs)


if __name__ == "__main__":
    job.run_on(ray, data_slow_consumer, data_fast_consumer)
