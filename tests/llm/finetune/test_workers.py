"""Runs on two workers give the losses of one process, also after one of them was killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate import tune
from skate.llm import FinetuneConfig, finetune
from skate.llm._finetune import loop
from skate.tune.integration.ray_train import TuneReportCallback
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


def test_a_run_whose_worker_is_killed_has_the_losses_of_one_that_is_not(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {"adapter": "lora", "val_set_size": 3, "save_steps": 2, "num_epochs": 3}
    expected = losses(config(chats(26), micro_batch_size=4, output_dir=tmp_path / "one", **keys))
    weights = _weights(tmp_path / "one" / "model")
    assert len(expected) > 10
    monkeypatch.setattr(loop, "train_worker", killing_worker)
    keys |= {"micro_batch_size": 2, "num_workers": 2, "max_failures": 1}
    for strategy in ("ddp", "fsdp2"):
        folder = tmp_path / strategy
        found = losses(config(strategy=strategy, output_dir=folder, **keys))
        assert (folder / "killed").exists()
        assert found == pytest.approx(expected, abs=1e-5), strategy
        exported = _weights(folder / "model")
        assert exported.keys() == weights.keys()
        for name, weight in weights.items():
            assert (weight - exported[name]).abs().max() < 1e-4, (strategy, name)


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def try_rate(given: dict[str, Any], config: FinetuneConfig) -> None:
    output = Path(config.output_dir, str(given["learning_rate"]))
    finetune(
        config, learning_rate=given["learning_rate"], output_dir=output, callbacks=[TuneReportCallback()]
    )


def test_the_best_trial_of_tune_continues_after_it_was_stopped(config: Make, tmp_path: Path) -> None:
    settings = config(chats(12), val_set_size=4, num_epochs=2, num_workers=2)
    results = tune.Tuner(
        tune.with_resources(tune.with_parameters(try_rate, config=settings), {"cpu": 0, "memory": 1}),
        param_space={"learning_rate": tune.grid_search([1e-4, 1e-2])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="tune", storage_path=str(tmp_path), stop={"epoch": 1}, verbose=0),
    ).fit()
    assert not results.errors
    assert [result.metrics["epoch"] for result in results] == [1, 1]
    best = results.get_best_result("eval_loss", "min")
    assert best.config["learning_rate"] == 1e-2
    resumed = finetune(settings, learning_rate=1e-2, output_dir=Path(settings.output_dir, "0.01"))
    whole = finetune(settings, learning_rate=1e-2, output_dir=tmp_path / "whole", save_model=False)
    assert resumed.history == whole.history
    assert resumed.path is not None
    assert (resumed.path / "model.safetensors").is_file()
