"""A model of the shape of SmolLM2-135M with random weights: speed does not depend on their values."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 0,
}
STREAMS, INPUTS, OUTPUTS = 16, 16, 128


def write() -> tempfile.TemporaryDirectory[str]:
    """Write the model in Hugging Face's format to a temporary folder."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models

    holder = tempfile.TemporaryDirectory(prefix="bench-llm-")
    folder = Path(holder.name)
    hidden, inner, kv_heads = 576, 1536, 192
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (49152, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(30):
        prefix = f"model.layers.{layer}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (hidden, hidden),
            f"{prefix}.self_attn.k_proj.weight": (kv_heads, hidden),
            f"{prefix}.self_attn.v_proj.weight": (kv_heads, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, hidden),
            f"{prefix}.mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}.mlp.up_proj.weight": (inner, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, inner),
        }
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=generator) * 0.02 for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = models.WordLevel({f"w{number}": number for number in range(49152)}, unk_token="w0")
    Tokenizer(words).save(str(folder / "tokenizer.json"))
    return holder


def prompts() -> list[list[int]]:
    """Return prompts of random tokens, the same in every run."""
    import random

    rng = random.Random(0)
    return [[rng.randrange(1, 49152) for _ in range(INPUTS)] for _ in range(STREAMS)]
