"""A program that is killed while it writes: once for each step that it takes, and then run to its end.

A step is something that is done to the output's folder: a file filled, flushed, moved, listed or removed. The program
forks a child for each step, which kills itself just before it, and another that goes on where it was.

    python -m tests.data.killed_write steps FOLDER     prints how many steps a run takes
    python -m tests.data.killed_write rows FOLDER      killed when workers come to the rows that DIE_AT names

With "steps of ids" and "rows of ids", it notes ids instead, in a folder `ids` beside the output's.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  # which Arrow imports: here, so that the children find it imported, like what follows

import skate
import skate.data
import skate.data._checkpointing.write
import skate.data._io.parquet_sink
import skate.data._resuming.job
from skate.data import DataContext
from skate.data._exec.drivers import inprocess
from skate.data._io import retrying, streams
from skate.data.checkpoint import CheckpointConfig

ROWS = 40


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's result; kill the program when it is the row to die at."""
    if str(row["id"]) == os.environ.get("DIE_AT"):
        os.kill(int(os.environ["PROGRAM"]), signal.SIGKILL)
    return {"id": row["id"], "double": 2 * row["id"]}


class Negated:
    """Runs in actors, so that reading, mapping and writing are tasks of their own."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "negative": -batch["id"]}


def goes_on(folder: str, by_ids: bool) -> dict[str, Any]:
    """Return arguments for a writer that resumes an earlier write: by parts of the source, or by ids."""
    if not by_ids:
        return {"resume": True}
    ids = Path(folder).parent / "ids" / Path(folder).name
    DataContext.get_current().checkpoint_config = CheckpointConfig(
        "id", str(ids), delete_checkpoint_on_success=False
    )
    return {}


def write(folder: str, by_ids: bool) -> None:
    """Write in this process: a few parts, in two files each."""
    options = goes_on(folder, by_ids)
    parts = 2 if by_ids else 3  # by ids, each takes more steps
    ds = skate.data.range(ROWS, override_num_blocks=parts).map(doubled)
    ds.write_parquet(folder, max_rows_per_file=ROWS // parts // 2 + 1, **options)


def write_on_workers(folder: str, by_ids: bool) -> None:
    """Write on workers, with a pool of actors between reading and writing."""
    options = goes_on(folder, by_ids)
    os.environ["PROGRAM"] = str(os.getpid())
    DataContext.get_current().small_plan_bytes = 0
    DataContext.get_current().target_max_block_size = 8 * 4  # several blocks in a part
    skate.init(num_cpus=2)
    ds = skate.data.range(ROWS, override_num_blocks=4).map(doubled).map_batches(Negated, concurrency=1)
    ds.write_parquet(folder, **options)
    skate.shutdown()


class Steps:
    """Counts steps, and ends this process when it comes to one of them."""

    def __init__(self, last: int | None) -> None:
        self.taken = 0
        self._last = last

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as a step."""

        def step(*args: Any) -> Any:
            self.taken += 1
            if self.taken == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args)

        return step


def in_child(folder: Path, by_ids: bool, last: int | None = None) -> int | None:
    """Write in a child; return the number of steps, or None if it was killed."""
    pid = os.fork()
    if pid == 0:
        steps = Steps(last)
        # A step that takes long must not start workers, which count steps of their own.
        inprocess.IN_PROCESS_SECONDS = float("inf")
        retrying.call = steps.counted(retrying.call)
        streams.fsync = steps.counted(streams.fsync)
        try:
            write(str(folder), by_ids)
            (folder.parent / "steps").write_text(str(steps.taken))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        return None
    assert os.WEXITSTATUS(status) == 0, f"the child failed at step {last}"
    return int((folder.parent / "steps").read_text())


def killed_at_every_step(folder: Path, by_ids: bool) -> int:
    """Kill a write at each of its steps, and let it go on; return how many steps there are."""
    steps = in_child(folder / "undisturbed", by_ids)
    assert steps is not None
    for step in range(1, steps + 1):
        assert in_child(folder / str(step), by_ids, step) is None, f"step {step} was not reached"
        in_child(folder / str(step), by_ids)
    # And one that is killed again and again, each time a step later.
    step = 1
    while in_child(folder / "again", by_ids, step) is None:
        step += 1
    return steps


if __name__ == "__main__":
    what, where = sys.argv[1:]
    noting = what.endswith(" of ids")
    if what.startswith("steps"):
        print(killed_at_every_step(Path(where), noting))
    else:
        write_on_workers(where, noting)
