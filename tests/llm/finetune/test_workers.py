"""Runs on two workers give the losses of one process, also after one of them was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate.llm import FinetuneConfig, finetune
from skate.llm._finetune import loop
from tests.conftest import LeakWatch
from tests.llm.finetune.models import chats

Make = Callable[..., FinetuneConfig]

pytestmark = pytest.mark.timeout(300)  # two workers import torch and transformers, on a busy machine too


@pytest.fixture(scope="module", autouse=True)
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2):
        yield


def losses(config: FinetuneConfig) -> list[float]:
    rows = finetune(config).history
    return [value for row in rows for value in (row["loss"], row.get("eval_loss", 0.0))]


def test_two_workers_have_the_losses_of_one_process(config: Make, tmp_path: Path) -> None:
    rows = chats(26)  # the last step has no sequence for one of the workers
    keys: dict[str, Any] = {"save_model": False, "val_set_size": 3, "num_epochs": 2}
    one = losses(config(rows, micro_batch_size=4, output_dir=tmp_path / "one", **keys))
    two = losses(config(gradient_accumulation_steps=2, num_workers=2, output_dir=tmp_path / "two", **keys))
    assert two == pytest.approx(one, abs=1e-5)


def killing_worker(settings: dict[str, Any]) -> Any:
    """Train, but kill this worker at the fifth step of the first attempt."""
    mark = Path(settings["prepared"]).parent / "killed"
    plain = loop.Trainer._train_step

    def kill_at_step_5(self: loop.Trainer, step: int) -> Any:
        if step == 5 and self.rank == 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, step)

    loop.Trainer._train_step = kill_at_step_5  # type: ignore[method-assign]
    return loop_train_worker(settings)


loop_train_worker = loop.train_worker


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_run_whose_worker_is_killed_has_the_losses_of_one_that_is_not(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    keys: dict[str, Any] = {"adapter": "lora", "val_set_size": 3, "gradient_accumulation_steps": 1}
    keys |= {"save_steps": 2, "num_epochs": 3, "micro_batch_size": 2}
    one = losses(config(chats(26), output_dir=tmp_path / "one", **{**keys, "micro_batch_size": 4}))
    monkeypatch.setattr(loop, "train_worker", killing_worker)
    made = config(num_workers=2, max_failures=1, strategy=strategy, output_dir=tmp_path / "two", **keys)
    two = losses(made)
    assert (tmp_path / "two" / "killed").exists()
    assert len(two) > 10
    assert two == pytest.approx(one, abs=1e-5)
    weights = [_weights(tmp_path / name / "model") for name in ("one", "two")]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        assert (weight - weights[1][name]).abs().max() < 1e-4, name


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")
