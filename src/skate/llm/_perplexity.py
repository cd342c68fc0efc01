"""The perplexity of a model on a text, which measures the loss of quality by quantization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional

from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.linear import (
    Bfloat16Linear,
    MakeLinear,
    TransposedLinear,
    make_int4_head,
    make_int4_linear,
)
from skate.llm._engine.model_config import read_model_config
from skate.llm._engine.model_files import ModelFiles, open_model
from skate.llm._engine.weights import llama_names

_WINDOW = 512  # tokens of which each sees those before it
_BLOCK = 16
_MAKE_LINEAR: dict[str, MakeLinear] = {
    "float32": TransposedLinear,
    "int4": make_int4_linear,
    "bfloat16": Bfloat16Linear,
}


def compare_perplexity(
    model: str | Path, *, text: str | None = None, kinds: Sequence[str] = ("float32", "int4")
) -> dict[str, float]:
    """Return the perplexity of a model on a CPU, for several kinds of matrix products.

    Args:
        model: A folder, a GGUF file, or an id on the Hugging Face hub.
        text: The text to predict; a part of Skate's guide by default.
        kinds: `"float32"`, `"int4"` or `"bfloat16"`.

    Raises:
        FileNotFoundError: If a file of the model is missing.
        ValueError: If the engine does not support the model, or the text is too short.
    """
    files = open_model(model)
    tokens = files.tokenizer.encode(guide_text() if text is None else text, add_special_tokens=False)
    if len(tokens) < 2:
        raise ValueError(f"a perplexity needs a text of at least 2 tokens, but this one has {len(tokens)}")
    return {kind: perplexity(files, tokens, kind) for kind in kinds}


def guide_text() -> str:
    """Return a part of Skate's guide, which does not change with it, so that figures can be compared."""
    return Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")


def perplexity(files: ModelFiles, tokens: Sequence[int], kind: str) -> float:
    """Return the perplexity of tokens: of each, given those before it in a window of 512.

    Args:
        files: The model.
        tokens: At least two tokens.
        kind: A kind of matrix product.
    """
    config = read_model_config(files.config)
    window = min(_WINDOW, config.max_position_embeddings)
    decoder = Decoder(
        config,
        dict(llama_names(config.model_type, files.tensors())),
        make_linear=_MAKE_LINEAR[kind],
        make_head=make_int4_head if kind == "int4" else None,
        device=torch.device("cpu"),
        dtype=torch.float32,
        max_length=window,
    )
    total, count = 0.0, 0
    for start in range(0, len(tokens) - 1, window):
        part = tokens[start : start + window]
        if len(part) > 1:
            total += _loss(decoder, part)
            count += len(part) - 1
    return math.exp(total / count)


@torch.inference_mode()
def _loss(decoder: Decoder, tokens: Sequence[int]) -> float:
    """Return the sum of the negative log-probabilities of all tokens but the first."""
    blocks = -(-len(tokens) // _BLOCK)
    cache = KVCache(decoder.config, blocks, _BLOCK, decoder.dtype, decoder.device)
    attention = PagedAttention(decoder.config, cache, [AttentionRow(0, len(tokens), range(blocks))])
    ids = torch.tensor(tokens)
    hidden = decoder.forward(ids, torch.arange(len(tokens)), attention)
    return float(functional.cross_entropy(decoder.logits(hidden[:-1]), ids[1:], reduction="sum"))
