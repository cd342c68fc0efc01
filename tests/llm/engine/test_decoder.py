"""The decoder against transformers' models, and its weights."""

from __future__ import annotations

import pytest
import torch

from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.linear import TransposedLinear
from skate.llm._engine.model_config import read_model_config
from tests.llm.engine.tiny_models import (
    CPU,
    FAMILIES,
    decoder_of,
    llama_shapes,
    reference_model,
    small_decoder,
)

# Chunks of a prompt and single tokens, in blocks that do not lie side by side.
CHUNKS = (13, 1, 1, 9, 16)
BLOCKS = (3, 4, 5, 9, 10, 1, 2, 0, 11, 12)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family: str) -> None:
    decoder = decoder_of(family)
    tokens = torch.randint(0, 97, (sum(CHUNKS),), generator=torch.Generator().manual_seed(2))
    cache = KVCache(decoder.config, 13, 4, torch.float32, CPU)
    logits = []
    start = 0
    with torch.inference_mode():
        expected = reference_model(family)(tokens[None]).logits[0]
        for count in CHUNKS:
            attention = PagedAttention(decoder.config, cache, [AttentionRow(start, count, BLOCKS)])
            hidden = decoder.forward(
                tokens[start : start + count], torch.arange(start, start + count), attention
            )
            logits.append(decoder.logits(hidden))
            start += count
    torch.testing.assert_close(torch.cat(logits), expected, atol=1e-4, rtol=0)


def test_sequences_of_one_step_do_not_see_each_other() -> None:
    decoder = small_decoder()
    first, second = torch.tensor([5, 6, 7]), torch.tensor([9, 8])
    with torch.inference_mode():
        cache = KVCache(decoder.config, 4, 4, torch.float32, CPU)
        rows = [AttentionRow(0, 3, [2]), AttentionRow(0, 2, [0])]
        together = decoder.forward(
            torch.cat((first, second)),
            torch.tensor([0, 1, 2, 0, 1]),
            PagedAttention(decoder.config, cache, rows),
        )
        alone = decoder.forward(
            second, torch.arange(2), PagedAttention(decoder.config, cache, [AttentionRow(0, 2, [3])])
        )
    torch.testing.assert_close(together[3:], alone, atol=1e-5, rtol=0)


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(ValueError, match=r"no tensor 'model\.layers\.1\.mlp\.down_proj\.weight'"):
        make_decoder(without="model.layers.1.mlp.down_proj.weight")


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes() -> None:
    config = {**small_config(), "intermediate_size": 65}
    with pytest.raises(
        ValueError, match=r"'model\.layers\.0\.mlp\.gate_proj\.weight' has shape \(64, 48\).*\(65, 48\)"
    ):
        make_decoder(config)


def test_an_unknown_model_type_is_refused_with_those_that_are_supported() -> None:
    with pytest.raises(ValueError, match=r"type 'mamba'; it supports llama, mistral"):
        read_model_config({"model_type": "mamba"})


def test_a_config_without_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"positive integer for 'num_attention_heads', got None"):
        read_model_config({"model_type": "llama", "hidden_size": 8})


def test_an_unknown_rope_scaling_is_refused() -> None:
    config = {**small_config(), "rope_scaling": {"rope_type": "longrope"}}
    with pytest.raises(
        ValueError, match=r"rope_scaling of type 'longrope'; it supports linear, llama3, yarn"
    ):
        make_decoder(config)


def small_config() -> dict[str, object]:
    return {
        "model_type": "llama",
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
    }


def make_decoder(config: dict[str, object] | None = None, *, without: str = "") -> Decoder:
    shapes = llama_shapes(read_model_config(small_config()))
    return Decoder(
        read_model_config(config or small_config()),
        {name: torch.zeros(shape) for name, shape in shapes.items() if name != without},
        make_linear=TransposedLinear,
        device=CPU,
        dtype=torch.float32,
        max_length=128,
    )
