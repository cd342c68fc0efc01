"""A training function whose workers are killed at given steps, and whose result must not change."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from skate import train
from skate.train import Checkpoint, CheckpointUploadMode, Result
from skate.train.torch import prepare_model
from tests.train.processes import die

MOMENTS = ("before the step", "in the step", "while a checkpoint is stored", "after the report")


def plan(seed: int, kills: int, steps: int, world: int) -> dict[int, tuple[str, list[int]]]:
    """Return at which steps which ranks are killed, and at what moment: one rank mostly, all of them sometimes."""
    rng = random.Random(seed)
    ranks = list(range(world))
    return {
        step: (rng.choice(MOMENTS), ranks if rng.random() < 0.2 else [rng.choice(ranks)])
        for step in sorted(rng.sample(range(steps), kills))
    }


def learn(config: dict[str, Any]) -> None:
    """Train a small network for `steps` steps, with a checkpoint after each second one.

    `strikes` has the plan; `scars` is a folder in which each worker notes that it has been killed at a step, because
    it comes to the step again.
    """
    context = train.get_context()
    rank = context.get_world_rank()
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.05)
    begun = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state"))
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begun = state["step"] + 1
    model = prepare_model(plain)
    for step in range(begun, config["steps"]):
        with _struck(config, step, rank) as moment:
            if moment == "before the step":
                die()
            if moment == "in the step":
                threading.Timer(0.002, die).start()
            torch.manual_seed(
                1000 * step + rank
            )  # dropout differs by step and rank, and is known again afterwards
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
            if step % 2:
                _report(
                    step, rank, plain, optimizer, _tears if moment == "while a checkpoint is stored" else None
                )
            else:
                train.report({"step": step})
            if moment is not None:
                die()


def _report(
    step: int, rank: int, model: Any, optimizer: Any, upload: Callable[..., Checkpoint] | None
) -> None:
    """Give a checkpoint that every rank has a part of."""
    folder = tempfile.mkdtemp()
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, os.path.join(folder, "state"))
    Path(folder, f"part-{rank}").write_text(str(step))
    train.report(
        {"step": step},
        checkpoint=Checkpoint.from_directory(folder),
        checkpoint_upload_mode=CheckpointUploadMode.ASYNC if step % 4 == 1 else CheckpointUploadMode.SYNC,
        checkpoint_upload_fn=upload,
        delete_local_checkpoint_after_upload=True,
    )


def _tears(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Store half of a file, and die."""
    target = Path(train.get_context().get_storage().path_of(name))
    target.mkdir(parents=True, exist_ok=True)
    for path in Path(checkpoint.path).iterdir():
        content = path.read_bytes()
        (target / path.name).write_bytes(content[: len(content) // 2])
    die()


@contextmanager
def _struck(config: dict[str, Any], step: int, rank: int) -> Iterator[str | None]:
    """Give the moment at which this worker is killed in this step, the first time that it comes to it."""
    moment, ranks = config["strikes"].get(step, (None, []))
    if rank not in ranks:
        yield None
        return
    try:
        os.close(os.open(Path(config["scars"], f"{step}-{rank}"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        yield None
        return
    yield moment


def learned(result: Result) -> tuple[int, list[bytes]]:
    """Return the last step, and the bits of all weights and of the optimizer's state."""
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        parts = sorted(path.name for path in Path(folder).glob("part-*"))
        assert parts == ["part-0", "part-1"]
        state = torch.load(os.path.join(folder, "state"))
    moments = [
        each[name] for each in state["optimizer"]["state"].values() for name in ("exp_avg", "exp_avg_sq")
    ]
    return state["step"], [tensor.numpy().tobytes() for tensor in [*state["model"].values(), *moments]]


def scars(folder: Path) -> list[str]:
    """Return which kills there have been: step and rank of each."""
    return sorted(path.name for path in folder.iterdir())


def heal(folder: Path) -> None:
    """Forget all kills."""
    shutil.rmtree(folder)
    folder.mkdir()
