"""Small tokenizers, trained on a few sentences."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

tokenizers: Any = pytest.importorskip("tokenizers")

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, again and again.",
    "Naïve café — ångström; don't stop, it's 12345 times better!",
    "日本語のテキスト、中文文本。한국어 텍스트",
    "Emoji 🤖👩‍👩‍👧‍👦🏳️‍🌈 and e\u0301 combining a\u0308\u0323 marks",
    "def add(a, b):\n    return a + b\n",
] * 4
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<unk>"]


@cache
def byte_level_json() -> str:
    """Return a byte-level BPE, as GPT-2's, that adds BOS."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_tokens(["<tool call>"])  # with a space, which is no character of the byte alphabet
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return str(tokenizer.to_str())


@cache
def sentencepiece_json() -> str:
    """Return a BPE with SentencePiece's marks for spaces and tokens for single bytes, as Llama 2's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, trainers

    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    single_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[*SPECIAL, *single_bytes],
        limit_alphabet=60,
        show_progress=False,
    )
    trained.train_from_iterator(SENTENCES, trainer)
    model = json.loads(trained.to_str())["model"]
    tokenizer = Tokenizer(
        models.BPE(
            model["vocab"],
            [tuple(each) for each in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = trained.normalizer
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return str(tokenizer.to_str())
