"""ZeRO-3 of DeepSpeed gives the losses and the weights of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate.llm import FinetuneConfig, finetune
from skate.llm._finetune import loop
from skate.train import TrainingFailedError
from tests.conftest import LeakWatch
from tests.llm.finetune.models import chats, make_model
from tests.llm.finetune.test_workers import killing_worker, losses

Make = Callable[..., FinetuneConfig]

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2):
        yield


def assert_same_models(one: Path, two: Path) -> None:
    from safetensors.torch import load_file

    expected, found = (load_file(folder / "model" / "model.safetensors") for folder in (one, two))
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert (weight - found[name]).abs().max() < 1e-4, name


@pytest.mark.parametrize("tied", [False, True])
def test_all_weights_are_trained_as_in_one_process(config: Make, tmp_path: Path, tied: bool) -> None:
    keys: dict[str, Any] = {
        "base_model": make_model(tmp_path / "base", tie_word_embeddings=tied),
        "val_set_size": 3,
        "num_epochs": 3,
        "gradient_accumulation_steps": 2,
        # Without a threshold, DeepSpeed would keep all weights of such a small model on each worker.
        "deepspeed": {"zero_optimization": {"stage3_param_persistence_threshold": 0}},
    }
    one = {**keys, "deepspeed": None, "micro_batch_size": 2, "output_dir": tmp_path / "one"}
    expected = losses(config(chats(26), **one))
    found = losses(config(num_workers=2, output_dir=tmp_path / "two", **keys))
    assert found == pytest.approx(expected, abs=1e-4)
    assert len(found) > 8
    assert_same_models(tmp_path / "one", tmp_path / "two")


def test_a_run_whose_worker_is_killed_has_the_losses_of_one_that_is_not(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {"adapter": "lora", "val_set_size": 3, "save_steps": 2, "num_epochs": 3}
    expected = losses(config(chats(26), micro_batch_size=4, output_dir=tmp_path / "one", **keys))
    monkeypatch.setattr(loop, "train_worker", killing_worker)
    keys |= {"micro_batch_size": 2, "num_workers": 2, "max_failures": 1, "strategy": "zero3"}
    found = losses(config(output_dir=tmp_path / "two", **keys))
    assert (tmp_path / "two" / "killed").exists()
    assert found == pytest.approx(expected, abs=1e-5)
    assert_same_models(tmp_path / "one", tmp_path / "two")


def test_it_needs_the_workers_that_it_began_with(config: Make, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"strategy": "zero3", "save_model": False, "max_steps": 2}
    done = finetune(config(num_workers=2, output_dir=tmp_path / "two", **keys))
    with pytest.raises(TrainingFailedError, match="of 2 workers, and there are 1 now"):
        finetune(
            config(
                num_workers=1,
                micro_batch_size=2,
                resume_from_checkpoint=str(done.checkpoint),
                output_dir=tmp_path / "one",
                **keys,
            )
        )
