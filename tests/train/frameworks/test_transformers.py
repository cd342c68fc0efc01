"""Training with transformers' own trainer, in a training function of TorchTrainer."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.utils.logging import disable_progress_bar

import skate
from skate import train
from skate.train import Result, RunConfig
from skate.train.collective import broadcast_from_rank_zero
from skate.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from skate.train.torch import TorchTrainer

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine", "polars_is_running")]

WORDS, LENGTH, ROWS, BATCH = 16, 8, 64, 8


def sentences() -> list[dict[str, Any]]:
    """Return sentences in which each word follows from the one before."""
    starts = np.random.default_rng(0).integers(0, WORDS, size=ROWS)
    return [{"input_ids": (np.arange(LENGTH) + start) % WORDS} for start in starts]


def tiny() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=WORDS,
            n_positions=LENGTH,
            n_embd=16,
            n_layer=1,
            n_head=2,
            bos_token_id=0,
            eos_token_id=0,
            loss_type="ForCausalLM",
        )
    )


def arguments(folder: Any, **options: Any) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        learning_rate=0.02,
        logging_steps=2,
        save_strategy="steps",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **options,
    )


def with_labels(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    words = torch.as_tensor(np.stack(batch["input_ids"]))
    return {"input_ids": words, "labels": words}


@pytest.fixture
def fit(fit_with: Callable[..., Result]) -> Callable[..., Result]:
    return partial(fit_with, TorchTrainer)


def test_workers_train_one_model_on_streams_and_its_checkpoint_is_transformers_own(
    fit: Callable[..., Result], tmp_path: Path
) -> None:
    def function() -> dict[str, Any]:
        seen: list[int] = []

        def counted(batch: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
            seen.append(len(batch["input_ids"]))
            return with_labels(batch)

        shard = train.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH, collate_fn=counted)
        held_out = train.get_dataset_shard("valid").iter_torch_batches(
            batch_size=BATCH, collate_fn=with_labels
        )
        model = tiny()
        mine = Trainer(
            model=model,
            args=arguments(tmp_path / "out", max_steps=8, save_steps=4, eval_strategy="steps", eval_steps=4),
            train_dataset=shard,
            eval_dataset=held_out,
            callbacks=[RayTrainReportCallback()],
        )
        prepare_trainer(mine).train()
        weights = model.transformer.wte.weight.tolist()
        assert weights == broadcast_from_rank_zero(weights)
        return {"seen": sum(seen), "weights": weights, "world": mine.args.world_size}

    rows = skate.data.from_items(sentences())
    result = fit(function, datasets={"train": rows, "valid": rows.limit(16)})
    found = result.return_value
    assert found["world"] == 2
    assert found["seen"] == ROWS  # eight steps are two passes over half of the rows
    assert [entry["step"] for _, entry in result.best_checkpoints] == [4, 8]
    losses = list(result.metrics_dataframe["loss"])
    assert losses[1] < losses[0]
    assert result.metrics["eval_loss"] < 2.5

    folder = Path(result.checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME)
    assert load_file(folder / "model.safetensors")["transformer.wte.weight"].tolist() == found["weights"]
    # What each worker has written is there.
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in folder.iterdir()}


def test_training_goes_on_from_a_checkpoint_when_a_worker_fails(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    class Failing(Trainer):  # type: ignore[misc]  # transformers may be missing
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            if self.state.global_step == 3 and train.get_checkpoint() is None:
                raise ValueError("the third step")
            return super().training_step(*args, **kwargs)

    def function() -> list[Any]:
        rows = [{key: torch.as_tensor(value) for key, value in row.items()} for row in sentences()]
        data = [{**row, "labels": row["input_ids"]} for row in rows]
        folder = tmp_path / f"out-{train.get_context().get_world_rank()}"  # one for each worker
        mine = Failing(
            model=tiny(),
            args=arguments(folder, num_train_epochs=1, save_steps=2, save_on_each_node=True),
            train_dataset=data,
            callbacks=[RayTrainReportCallback()],
        )
        checkpoint = train.get_checkpoint()
        if checkpoint is None:
            prepare_trainer(mine).train()
        else:
            with checkpoint.as_directory() as kept:
                path = str(Path(kept, RayTrainReportCallback.CHECKPOINT_NAME))
                prepare_trainer(mine).train(resume_from_checkpoint=path)
        return [type(mine).__name__, mine.state.global_step]

    result = fit(function, run=run_config(failures=1))
    assert result.return_value == ["Failing", ROWS // BATCH // 2]
    assert [entry["step"] for _, entry in result.best_checkpoints] == [2, 4]


def test_only_a_trainer_of_transformers_is_prepared() -> None:
    with pytest.raises(TypeError, match=r"takes a transformers\.Trainer, not str"):
        prepare_trainer("trainer")


def test_the_example_learns_and_reads_its_checkpoint(run_example: Callable[..., str]) -> None:
    disable_progress_bar()  # whose thread would stay
    printed = run_example("transformers_trainer.py", "--steps", "8")
    found = re.search(r"^loss: (\S+) at first, (\S+) after 8 steps$", printed, flags=re.MULTILINE)
    assert found is not None
    assert float(found[2]) < float(found[1]) < 6
    assert "read again: " in printed
