"""Write with `resume=True` while workers are killed at random moments, and after a while the program itself.

Its arguments are a folder, "tasks" or "actors", and a seed.

Each kill of a worker is a letter in `FOLDER/kills`. There are never more kills than committed units, and rows wait for
their share of the kills: so these are spread over the whole write, and the write goes on. Once there are KILLS of them,
the program runs to its end.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from reporting import ARGUMENTS

import skate
import skate.data
from skate.util import state

KILLS = 50
UNITS, ROWS = 100, 10
AHEAD = 4  # kills that the first units do without, so that some work gets done before the first kill


def kills() -> int:
    """Return how many workers have been killed, in all runs."""
    path = Path(os.environ["CHAOS_FOLDER"]) / "kills"
    return path.stat().st_size if path.exists() else 0


def squares(batch: dict[str, Any]) -> dict[str, Any]:
    """Return a result for each row."""
    return {"id": batch["id"], "square": batch["id"] ** 2}


def after_its_kills(batch: dict[str, Any]) -> dict[str, Any]:
    """Return the rows, when as many workers have been killed as belong to the unit."""
    unit = int(batch["id"][0]) // ROWS
    share = unit * (KILLS + AHEAD) // (UNITS - 1) - AHEAD  # the last unit waits for all of them
    while kills() < share:
        time.sleep(0.01)
    return batch


class Cubes:
    """Runs in actors, so that a part goes through several processes."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**after_its_kills(batch), "cube": batch["id"] ** 3}


def committed() -> int:
    """Return how many units are committed."""
    folder = Path(os.environ["CHAOS_FOLDER"]) / "out" / "_skate" / "units"
    return len(list(folder.glob("*.json"))) if folder.exists() else 0


def kill_workers(rng: random.Random) -> None:
    """Kill workers until there have been enough, or it is this program's turn."""
    left = rng.randrange(4, 9)
    while kills() < KILLS:
        while committed() <= kills():
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.2))  # a random moment is the point
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        workers = [row.pid for row in state.list_workers() if row.worker_type == "WORKER" and row.pid]
        try:
            os.kill(rng.choice(workers), signal.SIGKILL)
        except (ProcessLookupError, IndexError):
            continue  # it has ended, or there is none at this moment
        left -= 1
        with open(Path(os.environ["CHAOS_FOLDER"]) / "kills", "a") as file:
            file.write("x")


def main() -> None:
    folder, kind, seed = ARGUMENTS
    os.environ["CHAOS_FOLDER"] = folder
    skate.init(num_cpus=4)  # two for actors
    skate.data.DataContext.get_current().small_plan_bytes = 0
    ds = skate.data.range(UNITS * ROWS, override_num_blocks=UNITS).map_batches(squares)
    # Not in the tasks that read, if others write: they would wait for kills, and keep the writing from running.
    ds = ds.map_batches(Cubes, concurrency=2) if kind == "actors" else ds.map_batches(after_its_kills)
    if kills() < KILLS:
        threading.Thread(target=kill_workers, args=(random.Random(int(seed)),), daemon=True).start()
    ds.write_parquet(f"{folder}/out", resume=True)
    skate.shutdown()


if __name__ == "__main__":
    main()
