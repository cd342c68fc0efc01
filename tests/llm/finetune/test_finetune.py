"""Runs in this process: what is trained, resumed, stopped, exported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from skate.air import _optional
from skate.llm import (
    FinetuneConfig,
    FinetuneResult,
    GenerationRequest,
    SamplingParams,
    finetune,
    load_engine,
)
from skate.llm._finetune import loop
from skate.llm._finetune.export import load_trained
from skate.train import UserCallback
from tests.llm.finetune.models import chat, chats

Run = Callable[..., FinetuneResult]


def losses(result: FinetuneResult) -> list[float]:
    return [row["loss"] for row in result.history]


def generate(model: Any, tokenizer: Any, questions: list[str], **options: Any) -> list[list[int]]:
    """Return the tokens that a model answers with, the stop token included."""
    answers = []
    for question in questions:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt"
        )
        made = model.generate(**prompt, max_new_tokens=12, do_sample=False, **options)
        answers.append(made[0, prompt["input_ids"].shape[1] :].tolist())
    return answers


QUESTIONS = ["say red", "say green", "say blue", "say one", "say two"]


@pytest.mark.parametrize("adapter", [None, "lora"])
def test_what_was_trained_is_what_is_exported(run: Run, adapter: str | None, base: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    result = run(
        [chat(question, question.removeprefix("say ")) for question in QUESTIONS],
        adapter=adapter,
        num_epochs=80,
        micro_batch_size=2,
        lora_r=8,
        logging_steps=20,
        save_steps=1000,
    )
    assert losses(result)[-1] < 0.2 * losses(result)[0]
    assert result.path is not None
    assert {each.name for each in result.path.iterdir()} >= {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    tokenizer = AutoTokenizer.from_pretrained(result.path)
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(base).chat_template
    exported = AutoModelForCausalLM.from_pretrained(result.path)
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert stop in exported.generation_config.eos_token_id
    answers = generate(exported, tokenizer, QUESTIONS)
    if adapter is None:  # the adapter of a base with random weights learns less
        assert [tokenizer.decode(each) for each in answers] == [
            f"{question.removeprefix('say ')}<|im_end|>" for question in QUESTIONS
        ]
    config = FinetuneConfig.of(
        {"base_model": base, "datasets": ["rows"], "adapter": adapter, "lora_r": 8, "sequence_len": 64}
    )
    trained = load_trained(config, result.checkpoint)
    ends = exported.generation_config.eos_token_id
    assert generate(trained, tokenizer, QUESTIONS, eos_token_id=ends) == answers
    assert asyncio.run(serve(result.path, QUESTIONS)) == answers


async def serve(path: Path, questions: list[str]) -> list[list[int]]:
    """Return the tokens that the engine answers with to all questions at once, the stop token included."""
    engine = load_engine(path, num_threads=1)

    async def answer(question: str) -> list[int]:
        text = engine.tokenizer.apply_chat_template([{"role": "user", "content": question}])
        prompt = engine.tokenizer.encode(text, add_special_tokens=False)
        params = SamplingParams(temperature=0, max_tokens=12)
        request = GenerationRequest(request_id=question, prompt=prompt, params=params)
        return [token async for piece in engine.generate(request) for token in piece.tokens]

    try:
        return list(await asyncio.gather(*map(answer, questions)))
    finally:
        await engine.close()


def test_an_adapter_is_also_written_by_itself(run: Run, base: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    result = run(adapter="lora", lora_target_modules=["q_proj", "v_proj"], max_steps=3)
    assert result.adapter_path is not None
    ids = torch.arange(20)[None]
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), result.adapter_path)
        merged = AutoModelForCausalLM.from_pretrained(result.path)
        torch.testing.assert_close(adapted(ids).logits, merged(ids).logits, rtol=1e-4, atol=1e-4)


def test_a_loss_is_the_same_for_any_division_of_a_batch(run: Run, tmp_path: Path) -> None:
    found = [
        losses(
            run(
                micro_batch_size=micro,
                gradient_accumulation_steps=accumulation,
                sample_packing=packed,
                max_steps=4,
                output_dir=tmp_path / f"{micro}-{packed}",
            )
        )
        for packed in (True, False)
        for micro, accumulation in ((4, 1), (1, 4))
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert found[2] == pytest.approx(found[3], abs=1e-5)


class Killed(BaseException):
    """Ends a run in the way that a signal does."""


def test_a_killed_run_resumes_with_the_same_losses(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"adapter": "lora", "lora_dropout": 0.2, "save_steps": 2, "num_epochs": 2, "val_set_size": 4}
    whole = run(**keys, output_dir=tmp_path / "whole")
    assert len(losses(whole)) > 5

    plain = loop.Trainer._train_step

    def fail_at_step_5(self: loop.Trainer, step: int) -> Any:
        if step == 5:
            raise Killed
        return plain(self, step)

    monkeypatch.setattr(loop.Trainer, "_train_step", fail_at_step_5)
    with pytest.raises(Killed):
        run(**keys)
    monkeypatch.undo()
    resumed = run(**keys)
    assert losses(resumed) == losses(whole)
    assert [row.get("eval_loss") for row in resumed.history] == [
        row.get("eval_loss") for row in whole.history
    ]
    assert resumed.metrics == whole.metrics


def test_a_finished_run_is_not_repeated_by_accident(run: Run) -> None:
    first = run(max_steps=2)
    with pytest.raises(ValueError, match="has a finished run"):
        run(max_steps=2)
    again = run(max_steps=2, overwrite_output_dir=True)
    assert losses(again) == losses(first)


def test_an_unfinished_run_with_another_configuration_is_refused(run: Run) -> None:
    run(max_steps=2, save_model=False)
    with pytest.raises(ValueError, match="an unfinished run with a different learning_rate, max_steps"):
        run(max_steps=3, learning_rate=1e-3)
    with pytest.raises(ValueError, match="resume_from_checkpoint is false"):
        run(max_steps=2, resume_from_checkpoint=False)


def test_a_run_that_was_not_exported_is_exported_when_it_runs_again(run: Run) -> None:
    first = run(max_steps=2, save_model=False)
    assert first.path is None
    again = run(max_steps=2)
    assert again.path is not None
    assert (again.path / "model.safetensors").is_file()
    assert losses(again) == losses(first)


def test_a_run_to_resume_must_exist(run: Run) -> None:
    with pytest.raises(ValueError, match="no run to resume"):
        run(resume_from_checkpoint=True)


def test_a_failed_export_leaves_nothing_that_looks_like_a_model(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import GenerationConfig

    def fail(*given: Any, **options: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(GenerationConfig, "save_pretrained", fail)
    with pytest.raises(OSError, match="the disk is full"):
        run(max_steps=1)
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == ["config.json", "prepared", "run"]


def test_a_run_stops_early_and_exports_the_best_model(run: Run) -> None:
    result = run(
        chats(12),
        val_set_size=4,
        eval_steps=1,
        early_stopping_patience=2,
        num_epochs=50,
        learning_rate=0.5,  # far too high: the loss grows
        lr_scheduler="constant",
    )
    evaluated = [row["eval_loss"] for row in result.history]
    assert result.stopped_early
    assert evaluated[-3] == result.best_loss == min(evaluated)
    progress = json.loads((result.checkpoint / "progress.json").read_text())
    assert progress["step"] == len(evaluated) - 2


def test_a_run_evaluates_the_base_model_before_the_first_step(run: Run, tmp_path: Path) -> None:
    keys = {"val_set_size": 4, "num_epochs": 1, "learning_rate": 0.5, "save_model": False}  # the loss grows
    result = run(chats(12), eval_on_start=True, **keys)
    first = result.history[0]
    assert (first["step"], first["epoch"], first["tokens"]) == (0, 0, 0)
    assert "loss" not in first
    assert first["eval_loss"] < result.best_loss == result.history[-1]["eval_loss"]
    without = run(output_dir=tmp_path / "without", **keys)
    assert without.history == result.history[1:]


def test_callbacks_receive_the_reports_of_a_run(config: Callable[..., FinetuneConfig]) -> None:
    class Collect(UserCallback):
        def __init__(self) -> None:
            self.steps: list[int] = []

        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            self.steps.append(metrics[0]["step"])

    collect = Collect()
    finetune(config(max_steps=3), callbacks=[collect], save_model=False)
    assert collect.steps == [1, 2, 3]


def test_preferences_make_the_chosen_answer_more_probable(run: Run, tmp_path: Path) -> None:
    pairs = [
        {"prompt": question, "chosen": "red one", "rejected": "blue two"}
        for question in QUESTIONS
        for _ in range(2)
    ]
    result = run(
        pairs,
        datasets=[{"path": str(tmp_path / "rows.jsonl"), "type": "preference"}],
        rl="dpo",
        adapter="lora",
        beta=0.5,
        num_epochs=4,
        micro_batch_size=2,
        val_set_size=2,
        learning_rate=5e-3,
    )
    assert losses(result)[0] == pytest.approx(0.6931, abs=1e-3)  # the adapter starts as the reference
    assert losses(result)[-1] < 0.4
    assert result.metrics["eval_accuracy"] == 1


def test_text_trains_with_gradient_checkpointing_as_without(run: Run, tmp_path: Path) -> None:
    rows = [{"text": "red green blue one two"}, {"text": "three four five"}] * 4
    found = [
        losses(
            run(
                rows,
                datasets=[{"path": str(tmp_path / "rows.jsonl"), "type": "text"}],
                gradient_checkpointing=recomputed,
                adapter="lora",
                output_dir=tmp_path / str(recomputed),
            )
        )
        for recomputed in (False, True)
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_new_tokens_need_embeddings_that_are_trained(run: Run, tmp_path: Path) -> None:
    keys = {"special_tokens": {"pad_token": "<pad>"}, "adapter": "lora", "max_steps": 2}
    with pytest.raises(Exception, match="lora_modules_to_save"):
        run(**keys)
    result = run(**keys, lora_modules_to_save=["embed_tokens", "lm_head"], overwrite_output_dir=True)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(result.path)
    assert AutoModelForCausalLM.from_pretrained(result.path).vocab_size == len(tokenizer)


def test_sequences_longer_than_the_context_are_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="the context of the base model has 256 tokens"):
        run(sequence_len=512)


def test_a_base_model_that_is_not_there_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match=r"'nowhere', which has no config\.json"):
        run(base_model="nowhere")


def test_a_configuration_can_be_an_object_a_mapping_or_a_file(tmp_path: Path) -> None:
    from skate.llm._finetune.api import config_of

    (tmp_path / "c.yaml").write_text("base_model: m\ndatasets: [a.jsonl]\n")
    from_file = config_of(tmp_path / "c.yaml", {"lora_rank": 4})
    assert from_file == config_of({"base_model": "m", "datasets": ["a.jsonl"]}, {"lora_r": 4})
    assert config_of(from_file, {"lora_r": 2}).lora_r == 2
    with pytest.raises(TypeError, match="must be a FinetuneConfig"):
        finetune(5)  # type: ignore[arg-type]


def test_a_gguf_file_is_a_base_model(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    from tests.llm.engine.gguf_files import tokenizer_metadata
    from tests.llm.engine.models import CHAT_TEMPLATE
    from tests.llm.engine.test_model_files import convert, tiny
    from tests.llm.engine.tokenizers_for_tests import byte_level_json

    monkeypatch.setenv("SKATE_CACHE_DIR", str(tmp_path / "cache"))
    tokenizer = tokenizer_metadata(byte_level_json(), "gpt2", pre="gpt-2")
    tokenizer["tokenizer.chat_template"] = CHAT_TEMPLATE
    model = tiny("Llama", vocab_size=401, max_position_embeddings=256)
    file = convert(model, tmp_path / "small.gguf", "LLAMA", {}, tokenizer)
    result = run(base_model=file, adapter="lora", sequence_len=128, num_epochs=3, logging_steps=1)
    assert losses(result)[-1] < losses(result)[0]
    assert result.path is not None
    assert (result.path / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("keys", "package"),
    [
        ({"adapter": "qlora"}, "bitsandbytes"),
        ({"adapter": "qlora"}, "accelerate"),
        ({"strategy": "zero3"}, "deepspeed"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], package: str
) -> None:
    monkeypatch.setattr(_optional, "_is_installed", lambda name: name != package)
    with pytest.raises(ImportError, match=f"needs {package}: pip install {package}"):
        run(chats(2), **keys)
    assert not (tmp_path / "out").exists()
