"""Tiny models with their tokenizers, and rows to train them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Ends turns with <|im_end|> and a line break, and has no `{% generation %}`.
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = ["red", "green", "blue", "one", "two", "three", "four", "five", "six", "seven"]


def make_tokenizer(template: str | None = TEMPLATE) -> Any:
    """Train a byte-level BPE tokenizer on a few words."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = tokenizers.Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    plain.train_from_iterator(
        [f"{a} {b}\nuser\nassistant\nsystem" for a in WORDS for b in WORDS],
        trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}, replace_extra_special_tokens=False
    )
    tokenizer.chat_template = template
    return tokenizer


def make_model(folder: Path, **options: Any) -> Path:
    """Write a Llama of two layers with random weights, and its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = make_tokenizer()
    settings = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        **options,
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**settings))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def chat(question: str, answer: str, **more: Any) -> dict[str, Any]:
    """Return a row of a chat."""
    return {
        "messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}],
        **more,
    }


def chats(number: int) -> list[dict[str, Any]]:
    """Return rows of different lengths."""
    return [
        chat(f"say {WORDS[i % 10]}", " ".join(WORDS[(i + j) % 10] for j in range(1 + i % 5)))
        for i in range(number)
    ]


def write_rows(path: Path, rows: list[Any]) -> str:
    """Write rows as lines of JSON; texts are written unchanged."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)
