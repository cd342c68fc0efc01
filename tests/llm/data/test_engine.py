"""Processors that run a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skate.data.llm import SGLangEngineProcessorConfig, build_processor, vLLMEngineProcessorConfig
from tests.llm.data.conftest import ENGINE, dataset
from tests.llm.engine.models import CHAT_TEMPLATE

pytestmark = pytest.mark.usefixtures("session")

Direct = Callable[..., list[dict[str, Any]]]
GREEDY = {"temperature": 0.0, "max_tokens": 8}


def run(config: Any, rows: list[dict[str, Any]], **functions: Any) -> list[dict[str, Any]]:
    return build_processor(config, **functions)(dataset(rows)).take_all()


def test_rows_get_the_text_that_the_engine_gives(models: Path, direct: Direct) -> None:
    prompts = [f"The quick {word}" for word in ("brown", "red", "blue", "green", "lazy", "old", "new")]
    config = vLLMEngineProcessorConfig(
        model_source=models / "model", engine_kwargs=ENGINE, batch_size=2, max_concurrent_batches=2
    )
    rows = run(
        config,
        [{"id": number, "text": text} for number, text in enumerate(prompts)],
        preprocess=lambda row: {
            "prompt": row["text"],
            # The parameters of one row are not those of another.
            "sampling_params": {**GREEDY, **({"max_tokens": 5} if row["id"] == 1 else {"min_tokens": 2})},
        },
    )
    expected = direct(prompts, temperature=0.0, max_tokens=8)
    assert [row["id"] for row in rows] == list(range(7))
    for row, want in zip(rows, expected, strict=True):
        length = 5 if row["id"] == 1 else 8
        assert row["prompt"] == row["text"]
        assert row["num_input_tokens"] == want["num_input_tokens"]
        assert list(row["generated_tokens"]) == want["generated_tokens"][:length]
        assert row["num_generated_tokens"] == length
        if length == 8:
            assert row["generated_text"] == want["generated_text"]
        assert "__inference_error__" not in row


def test_messages_are_rendered_by_the_template(models: Path, direct: Direct) -> None:
    config = vLLMEngineProcessorConfig(
        model_source=str(models / "model"),
        engine_kwargs=ENGINE,
        chat_template_stage={"chat_template": CHAT_TEMPLATE + "{{ mood }}"},
    )
    parts = [{"type": "text", "text": "Hello"}]
    rows = run(
        config,
        [{"id": 0}],
        preprocess=lambda row: {
            "messages": [{"role": "user", "content": parts}],
            "sampling_params": {**GREEDY, "seed": None},
            "chat_template_kwargs": {"mood": "glad"},
        },
        postprocess=lambda row: {"answer": row["generated_text"], "prompt": row["prompt"]},
    )
    text = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nglad"
    (want,) = direct([text], temperature=0.0, max_tokens=8)
    assert rows == [{"answer": want["generated_text"], "prompt": text}]


def test_bad_rows_become_dead_letters_and_good_ones_choose_an_adapter(models: Path, direct: Direct) -> None:
    config = vLLMEngineProcessorConfig(
        model_source=str(models / "model"),
        engine_kwargs=ENGINE,
        dynamic_lora_loading_path=models / "adapters",
        should_continue_on_error=True,
    )
    bad = [
        ({"prompt": "a b " * 400}, "ValueError: the prompt has .* tokens, but the context has room for 255"),
        ({"prompt": "The", "sampling_params": {"temprature": 0}}, "Did you mean 'temperature'"),
        ({"prompt": "The", "model": "poets"}, "there is no adapter in .*Did you mean 'poet'"),
        ({"prompt": "The", "model": "../model"}, "outside the folder of adapters"),
        ({"promt": "The"}, "the row has no `messages`, `prompt` .*Did you mean 'prompt'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "takes text only"),
        ({"messages": []}, "at least one message"),
    ]
    good = [
        {"prompt": "The quick", "sampling_params": GREEDY, "model": name} for name in (None, "poet", "poet")
    ]
    given = [*good, *(row for row, _ in bad)]
    rows = run(
        config,
        [{"id": number} for number in range(len(given))],
        preprocess=lambda row: given[row["id"]],
        postprocess=lambda row: {"id": row["id"], "answer": row["generated_text"]},
    )
    (want,) = direct(["The quick"], **GREEDY)
    base, first, second = (row["answer"] for row in rows[:3])
    assert base == want["generated_text"]
    assert first == second != base
    assert [row["__inference_error__"] for row in rows[:3]] == ["", "", ""]
    for row, (_, reason) in zip(rows[3:], bad, strict=True):
        assert re.search(reason, row["__inference_error__"])
        assert row["generated_text"] == ""
        assert row["num_generated_tokens"] == 0
        assert row["answer"] is None


def test_rows_are_embedded(models: Path, direct: Direct) -> None:
    config = vLLMEngineProcessorConfig(
        model_source=str(models / "model"),
        engine_kwargs=ENGINE,
        task_type="embed",
        should_continue_on_error=True,
    )
    rows = run(config, [{"prompt": "The quick"}, {"prompt": "a b " * 400}, {"prompt": "brown fox"}])
    expected = direct(["The quick", "brown fox"], max_tokens=1)
    for row, want in zip([rows[0], rows[2]], expected, strict=True):
        np.testing.assert_allclose(row["embeddings"], want["embeddings"], atol=1e-6)
        assert row["num_input_tokens"] == want["num_input_tokens"]
    assert rows[1]["embeddings"] is None
    assert "tokens" in rows[1]["__inference_error__"]


def test_structured_outputs_and_log_probabilities_are_given(models: Path) -> None:
    config = SGLangEngineProcessorConfig(
        model_source=str(models / "model"),
        engine_kwargs={"num_threads": 1, "context_length": 128, "tp_size": 1},
    )
    given = [
        {"max_new_tokens": 30, "structured_outputs": {"choice": ["yes", "no"]}, "seed": 1},
        {"max_new_tokens": 3, "logprobs": 2, "temperature": 0},
        {"max_new_tokens": 3, "regex": "[0-9]{3}"},
    ]
    choice, scored, digits = run(
        config,
        [{"id": number, "prompt": "The"} for number in range(3)],
        preprocess=lambda row: {"sampling_params": given[row["id"]]},
    )
    assert choice["generated_text"] in ("yes", "no")
    assert len(scored["logprobs"]) == 3
    for token, best in zip(scored["generated_tokens"], scored["logprobs"], strict=True):
        assert best[token]["rank"] == 1
        assert len(best) == 2
    assert digits["generated_text"].isdecimal()
