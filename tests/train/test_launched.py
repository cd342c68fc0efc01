"""Training in processes that torchrun started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

PROGRAM = """
import json, os, pathlib, sys, tempfile
import torch, torch.distributed as dist
from skate import train
from skate.train import Checkpoint, RunConfig, ScalingConfig, UserCallback
from skate.train.collective import broadcast_from_rank_zero
from skate.train.torch import TorchTrainer, prepare_model

def say(values):
    # In one write, which the other process cannot interrupt; `print` writes the end of the line separately.
    os.write(1, (json.dumps(values) + "\\n").encode())

class Told(UserCallback):
    def after_report(self, run_context, metrics, checkpoint):
        say({"told": metrics})

def function():
    context = train.get_context()
    rank = context.get_world_rank()
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(1, 1, bias=False))
    model(torch.tensor([[float(rank)]])).sum().backward()
    step = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            step = 1 + int(pathlib.Path(folder, f"part-{rank}").read_text())
    folder = tempfile.mkdtemp()
    pathlib.Path(folder, f"part-{rank}").write_text(str(step))
    train.report({"rank": rank}, checkpoint=Checkpoint(folder))
    return {
        "rank": rank, "of": context.get_world_size(), "local": context.get_local_rank(),
        "model": type(model).__name__, "gradient": next(model.parameters()).grad.item(),
        "heard": broadcast_from_rank_zero(f"rank {rank}"), "step": step,
        # More than a server of torch takes at once.
        "bytes": len(broadcast_from_rank_zero(bytes(9 << 20))),
        "group": dist.is_initialized(), "kept": context.get_storage().experiment_fs_path,
    }

result = TorchTrainer(
    function,
    scaling_config=ScalingConfig(num_workers=0),
    run_config=RunConfig(storage_path=sys.argv[1], name=sys.argv[2] or None, callbacks=[Told()]),
).fit()
say({**result.return_value, "left": not dist.is_initialized()})
"""


def run(folder: Path, *launcher: str, name: str = "run") -> list[dict[str, Any]]:
    """Run the program, and return what its processes have said."""
    program = folder / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, *launcher, str(program), str(folder / "runs"), name],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SKATE_TRAIN_CURVES": "0"},
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted(said, key=lambda each: each.get("rank", -1))


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_processes_of_torchrun_are_a_group_that_keeps_one_run(tmp_path: Path) -> None:
    name = ""  # so that each of them would choose another
    for step in range(2):
        told, first, second = run(tmp_path, *TORCHRUN, name=name)
        assert told == {"told": [{"rank": 0}]}, "rank 0 tells, and nobody else"
        (kept,) = (tmp_path / "runs").iterdir()
        common = {
            "of": 2,
            "model": "DistributedDataParallel",
            "gradient": 0.5,
            "heard": "rank 0",
            "bytes": 9 << 20,
        }
        common |= {"step": step, "group": True, "left": True, "kept": str(kept)}
        assert first == {**common, "rank": 0, "local": 0}
        assert second == {**common, "rank": 1, "local": 1}
        parts = sorted(path.name for path in (kept / f"checkpoint_{step:06d}").iterdir())
        assert parts == ["part-0", "part-1"]
        name = kept.name
    record = json.loads((kept / "run.json").read_text())
    assert [each["name"] for each in record["kept"]] == ["checkpoint_000000", "checkpoint_000001"]
    assert len((kept / "metrics.jsonl").read_text().splitlines()) == 2, "what rank 0 has reported"


def test_a_process_that_nobody_has_launched_is_alone(tmp_path: Path) -> None:
    _, alone = run(tmp_path)
    assert (alone["of"], alone["model"], alone["group"]) == (1, "Linear", False)
