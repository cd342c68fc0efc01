"""Datasets on many cores: the first job of a process, and batches that take long to compute."""

from __future__ import annotations

import importlib
import time
from typing import Any

import meter

job = meter.Job()
ray: Any = job.load()
data: Any = importlib.import_module(f"{job.system}.data")
data.DataContext.get_current().enable_progress_bars = False

SECONDS = 0.02  # of a batch


def spin(batch: dict[str, Any]) -> dict[str, Any]:
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        pass
    return batch


def data_first() -> float:
    """Run the first job of a process, over 10,000 rows."""

    def step() -> None:
        found = data.range(10_000).map_batches(lambda batch: {"double": 2 * batch["id"]}).count()
        if found != 10_000:
            raise RuntimeError(f"{found} rows instead of 10,000")

    return job.once(lambda: None, step)


def data_spin() -> float:
    """Return the share of the cores, in per cent, that batches of 20 ms keep busy, once the workers are there."""
    count = 100 * job.cpus

    def step() -> None:
        ds = data.range(count, override_num_blocks=4 * job.cpus).map_batches(spin, batch_size=1)
        for _ in ds.iter_batches(batch_size=None):
            pass

    return 100 * count * SECONDS / job.cpus / job.once(step, step)


if __name__ == "__main__":
    job.run_on(ray, data_first, data_spin)
