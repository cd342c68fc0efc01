"""Small models with random weights, made by the libraries that define them."""

from __future__ import annotations

import functools
from typing import Any

import torch

from skate.llm._engine.adapters import AdaptedRows, Adapter
from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.blocks import BlockPool
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.linear import TransposedLinear
from skate.llm._engine.model_config import ModelConfig, read_model_config
from skate.llm._engine.runner import CpuRunner
from skate.llm._engine.scheduler import Scheduler
from skate.llm._engine.weights import llama_names

VOCABULARY = 97
CPU = torch.device("cpu")
_SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# A model of each family, with the features that set it apart.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _SHAPE),
    "llama with scaled positions": ("llama", {**_SHAPE, "rope_scaling": _LLAMA3}),
    "llama with linear positions": (
        "llama",
        {**_SHAPE, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
    "llama with biases": ("llama", {**_SHAPE, "attention_bias": True, "mlp_bias": True}),
    "mistral with a window": ("mistral", {**_SHAPE, "sliding_window": 7, "head_dim": 12}),
    "qwen2": ("qwen2", _SHAPE),
    "qwen3 with yarn": (
        "qwen3",
        {
            **_SHAPE,
            "head_dim": 16,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        },
    ),
    "gemma": ("gemma", {**_SHAPE, "head_dim": 16}),
    "gemma2": ("gemma2", {**_SHAPE, "head_dim": 16, "sliding_window": 6}),
    "gemma3": ("gemma3_text", {**_SHAPE, "head_dim": 16, "sliding_window": 6, "num_hidden_layers": 7}),
    "gpt2": (
        "gpt2",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 48,
            "n_head": 4,
            "n_layer": 2,
            "n_positions": 128,
            "bos_token_id": 0,
            "eos_token_id": 0,
        },
    ),
}


@functools.cache
def reference_model(family: str) -> Any:
    """Return transformers' model of a family."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, keys = FAMILIES[family]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **keys), attn_implementation="eager"
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    return model.eval()


@functools.cache
def decoder_of(family: str) -> Decoder:
    """Return our decoder with the weights of transformers' model."""
    model = reference_model(family)
    config = read_model_config(model.config.to_dict())
    return Decoder(
        config,
        dict(llama_names(config.model_type, model.state_dict().items())),
        make_linear=TransposedLinear,
        device=CPU,
        dtype=torch.float32,
        max_length=128,
    )


@functools.cache
def small_decoder(device: torch.device = CPU) -> Decoder:
    """Return a Llama of two layers, made without transformers."""
    config = read_model_config({**_SHAPE, "model_type": "llama", "rms_norm_eps": 1e-5})
    generator = torch.Generator().manual_seed(1)
    weights = {
        name: torch.randn(shape, generator=generator) * 0.3 for name, shape in llama_shapes(config).items()
    }
    return Decoder(
        config, weights, make_linear=TransposedLinear, device=device, dtype=torch.float32, max_length=128
    )


def small_adapter(seed: int, device: torch.device = CPU) -> Adapter:
    """Return an adapter of some matrices of the small decoder, named after its seed."""
    shapes = llama_shapes(small_decoder().config)
    generator = torch.Generator().manual_seed(seed)
    factors = {}
    for name, shape in shapes.items():
        module = name.removesuffix(".weight")
        if module.endswith(("q_proj", "v_proj", "down_proj")):
            outputs, inputs = shape
            down, up = (torch.randn(each, generator=generator) * 0.3 for each in ((inputs, 2), (2, outputs)))
            factors[module] = (down.to(device), up.to(device))
    return Adapter(str(seed), seed, factors)


def llama_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the tensors of a Llama checkpoint."""
    hidden, inner = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config.vocab_size, hidden),
    }
    for index in range(config.num_layers):
        prefix = f"model.layers.{index}"
        shapes |= {
            f"{prefix}.input_layernorm.weight": (hidden,),
            f"{prefix}.post_attention_layernorm.weight": (hidden,),
            f"{prefix}.self_attn.q_proj.weight": (heads, hidden),
            f"{prefix}.self_attn.k_proj.weight": (kv_heads, hidden),
            f"{prefix}.self_attn.v_proj.weight": (kv_heads, hidden),
            f"{prefix}.self_attn.o_proj.weight": (hidden, heads),
            f"{prefix}.mlp.gate_proj.weight": (inner, hidden),
            f"{prefix}.mlp.up_proj.weight": (inner, hidden),
            f"{prefix}.mlp.down_proj.weight": (hidden, inner),
        }
    return shapes


@torch.inference_mode()
def plain_logits(decoder: Decoder, tokens: list[int], adapter: Adapter | None = None) -> torch.Tensor:
    """Return the logits of every position, computed in one pass."""
    positions = torch.arange(len(tokens))
    adapted = [] if adapter is None else [AdaptedRows(adapter, positions)]
    cache = KVCache(decoder.config, 1, len(tokens), torch.float32, CPU)
    attention = PagedAttention(decoder.config, cache, [AttentionRow(0, len(tokens), [0])])
    return decoder.logits(decoder.forward(torch.tensor(tokens), positions, attention, adapted))


def make_scheduler(
    blocks: int,
    *,
    block_size: int = 4,
    max_sequences: int = 8,
    max_step_tokens: int = 16,
    prefix_caching: bool = True,
) -> Scheduler:
    return Scheduler(
        BlockPool(blocks, block_size),
        max_sequences=max_sequences,
        max_step_tokens=max_step_tokens,
        prefix_caching=prefix_caching,
    )


def make_runner(decoder: Decoder, scheduler: Scheduler) -> CpuRunner:
    pool = scheduler.pool
    return CpuRunner(decoder, KVCache(decoder.config, pool.count, pool.block_size, torch.float32, CPU))
