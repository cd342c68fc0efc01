"""Model folders that engines load: a small Llama with random weights, and adapters for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from skate.llm._engine.model_config import read_model_config
from tests.llm.engine.tiny_models import llama_shapes
from tests.llm.engine.tokenizers_for_tests import byte_level_json

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_model(folder: Path, *, seed: int = 0, **keys: Any) -> Path:
    """Write a Llama of two layers with the tokenizer of the tests."""
    from safetensors.torch import save_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(byte_level_json())
    config = {
        "model_type": "llama",
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 12,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "eos_token_id": tokenizer.token_to_id("</s>"),
        **keys,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(byte_level_json())
    special = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    generator = torch.Generator().manual_seed(seed)
    shapes = llama_shapes(read_model_config(config))
    weights = {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    return folder


def write_adapter(
    folder: Path, *, seed: int, rank: int = 4, hidden: int = 48, inputs: int | None = None, **settings: Any
) -> Path:
    """Write a LoRA adapter for the queries and the MLP of that model, as peft does."""
    from safetensors.torch import save_file

    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(2):
        for module, size in (("self_attn.q_proj", hidden), ("mlp.up_proj", 64)):
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = (
                torch.randn((rank, inputs or hidden), generator=generator) * 0.3
            )
            tensors[f"{name}.lora_B.weight"] = torch.randn((size, rank), generator=generator) * 0.3
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "up_proj"],
        "base_model_name_or_path": "",
        "task_type": "CAUSAL_LM",
        **settings,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder
