"""What is trained is what is served: the trainer's model, the torch engine and vLLM give equal tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from skate.llm import (
    Engine,
    FinetuneConfig,
    GenerationRequest,
    SamplingParams,
    finetune,
    load_engine,
)
from skate.llm._engine.model_files import open_tokenizer
from skate.llm._finetune.export import load_trained
from tests.llm.finetune import models
from tests.llm.vllm.conftest import MODEL, Load

pytestmark = pytest.mark.vllm

QUESTIONS = [f"say {word}" for word in models.WORDS] + [
    f"say {first} and {second}"
    for first, second in zip(models.WORDS, [*models.WORDS[1:], "red"], strict=True)
]
PAIRS = [
    {"prompt": question, "chosen": "red one", "rejected": "blue two"}
    for question in QUESTIONS
    for _ in range(2)
]
RECIPES: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"adapter": "lora", "lora_r": 8},
    "dpo": {"adapter": "lora", "lora_r": 8, "rl": "dpo", "beta": 0.5, "learning_rate": 5e-3},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.make_model(
        tmp_path_factory.mktemp("models") / "base",
        hidden_size=MODEL["hidden_size"],
        num_attention_heads=MODEL["num_attention_heads"],
        num_key_value_heads=MODEL["num_key_value_heads"],
    )


def config_of(recipe: str, base: Path, folder: Path) -> FinetuneConfig:
    rows = PAIRS if recipe == "dpo" else models.chats(40)
    path = models.write_rows(folder / "rows.jsonl", rows)
    kind = {"type": "preference"} if recipe == "dpo" else {}
    given = {
        "base_model": base,
        "datasets": [{"path": path, **kind}],
        "output_dir": folder / "out",
        "num_workers": 0,
        "sequence_len": 64,
        "learning_rate": 1e-2,
        "micro_batch_size": 2,
        "num_epochs": 4,
        **RECIPES[recipe],
    }
    return FinetuneConfig.of(given)


def trainer_tokens(config: FinetuneConfig, checkpoint: Path, exported: Path) -> list[list[int]]:
    """Return the answers of the model that was trained, as it is in its checkpoint."""
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(exported)
    ends = GenerationConfig.from_pretrained(exported).eos_token_id
    model = load_trained(config, checkpoint).eval()
    answers = []
    for question in QUESTIONS:
        prompt = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt"
        )
        with torch.inference_mode():
            made = model.generate(**prompt, max_new_tokens=12, do_sample=False, eos_token_id=ends)
        answers.append(made[0, prompt["input_ids"].shape[1] :].tolist())
    return answers


async def engine_tokens(
    engine: Engine, adapter: str | None = None, ends: tuple[int, ...] = ()
) -> list[list[int]]:
    """Return the answers of an engine to all questions at once."""

    async def answer(question: str) -> list[int]:
        text = engine.tokenizer.apply_chat_template([{"role": "user", "content": question}])
        request = GenerationRequest(
            request_id=question,
            prompt=engine.tokenizer.encode(text, add_special_tokens=False),
            params=SamplingParams(temperature=0, max_tokens=12, stop_token_ids=ends),
            adapter=adapter,
        )
        return [token async for piece in engine.generate(request) for token in piece.tokens]

    return list(await asyncio.gather(*map(answer, QUESTIONS)))


async def torch_tokens(folder: Path) -> list[list[int]]:
    engine = load_engine(folder, engine="torch", num_threads=1)
    try:
        return await engine_tokens(engine)
    finally:
        await engine.close()


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_trained_is_what_is_served(load: Load, base: Path, tmp_path: Path, recipe: str) -> None:
    config = config_of(recipe, base, tmp_path)
    result = finetune(config)
    assert result.path is not None
    expected = trainer_tokens(config, result.checkpoint, result.path)
    assert len(expected) == 20
    assert len({tuple(answer) for answer in expected}) > 1
    assert asyncio.run(torch_tokens(result.path)) == expected
    with load(result.path) as engine:
        assert asyncio.run(engine_tokens(engine)) == expected
    if result.adapter_path is not None:
        ends = open_tokenizer(result.path).eos_token_ids  # the base does not know them
        with load(base, enable_lora=True) as engine:
            asyncio.run(engine.add_adapter("trained", str(result.adapter_path)))
            assert asyncio.run(engine_tokens(engine, "trained", ends)) == expected
