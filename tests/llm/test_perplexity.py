"""Perplexity, compared with transformers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from skate.llm import _perplexity as perplexity
from skate.llm._engine.linear import has_bfloat16
from skate.llm._engine.model_files import open_model
from tests.llm.engine.models import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "llama", hidden_size=64, head_dim=16)


def test_it_is_that_of_transformers(folder: Path) -> None:
    from transformers import LlamaForCausalLM

    files = open_model(folder)
    tokens = files.tokenizer.encode(perplexity.guide_text(), add_special_tokens=False)[:400]
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    size = 256  # the context of the model
    total = 0.0
    for part in (tokens[:size], tokens[size:]):
        ids = torch.tensor([part])
        with torch.no_grad():
            total += float(model(input_ids=ids, labels=ids).loss) * (len(part) - 1)
    expected = math.exp(total / (len(tokens) - 2))
    assert perplexity.perplexity(files, tokens, "float32") == pytest.approx(expected, rel=1e-4)


def test_weights_of_four_bits_change_it_a_little(folder: Path) -> None:
    found = perplexity.compare_perplexity(folder, text="The quick brown fox. " * 20)
    assert found["float32"] != found["int4"]
    assert found["int4"] == pytest.approx(found["float32"], rel=0.5)


@pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no instructions for bfloat16")
def test_products_in_bfloat16_hardly_change_it(folder: Path) -> None:
    found = perplexity.compare_perplexity(
        folder, text="The quick brown fox. " * 20, kinds=("float32", "bfloat16")
    )
    assert found["float32"] != found["bfloat16"]
    assert found["bfloat16"] == pytest.approx(found["float32"], rel=0.05)


def test_one_token_has_none(folder: Path) -> None:
    with pytest.raises(ValueError, match="at least 2 tokens, but this one has 0"):
        perplexity.compare_perplexity(folder, text="")
