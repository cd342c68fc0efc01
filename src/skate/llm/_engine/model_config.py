"""The shape of a decoder-only model, read from the `config.json` of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

FULL = 0  # the window of a layer that attends to every earlier token


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """Parameters of rotary position embeddings.

    Args:
        theta: The base of the frequencies.
        scaling: How the frequencies are scaled for longer contexts, as in `config.json`.
    """

    theta: float
    scaling: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """The shape of a decoder-only model.

    Most fields have the meaning of the same key in `config.json`.

    Args:
        norm: The kind of norms: root-mean-square norms, or layer norms with a bias.
        norm_offset: A number to add to the weights of the norms, because Gemma stores them minus 1.
        post_norms: Whether the outputs of attention and of the MLP are also normalized, as in Gemma 2.
        qk_norm: Whether queries and keys are normalized per head.
        gated: Whether the MLP multiplies its activation by a second projection.
        rope: The rotary position embeddings; None for learned position embeddings.
        local_rope: The rotary position embeddings of the layers with a window, if they differ.
        windows: For each layer, how many tokens it attends to; 0 for all.
        attention_scale: The factor of the attention scores.
        attention_softcap: The limit of the attention scores, which is applied smoothly; None for no limit.
        logit_softcap: The limit of the logits, which is applied smoothly; None for no limit.
        embedding_scale: The factor of the token embeddings.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    norm_eps: float
    norm: Literal["rms", "layer"] = "rms"
    norm_offset: float = 0.0
    post_norms: bool = False
    qk_norm: bool = False
    gated: bool = True
    activation: Literal["silu", "gelu_tanh", "gelu"] = "silu"
    rope: RopeConfig | None
    local_rope: RopeConfig | None = None
    windows: tuple[int, ...]
    attention_scale: float
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    tie_word_embeddings: bool = False

    @property
    def kv_bytes_per_token(self) -> int:
        """The size of the keys and values of one token in bytes, if their data type has one byte."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim


_ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh", "gelu"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def read_model_config(config: Mapping[str, Any]) -> ModelConfig:
    """Read the shape of a model from its `config.json`.

    Raises:
        ValueError: If the engine does not support this kind of model.
    """
    model_type = config.get("model_type")
    if model_type == "gpt2":
        return _read_gpt2(config)
    if model_type == "gemma3" and "text_config" in config:
        config = {**config["text_config"], "model_type": "gemma3_text"}
        model_type = "gemma3_text"
    if model_type not in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"):
        raise ValueError(
            f"the torch engine does not support models of type {model_type!r}; it supports llama, mistral, qwen2, "
            "qwen3, gemma, gemma2, gemma3_text and gpt2. Install vllm to serve others"
        )
    gemma = model_type.startswith("gemma")
    heads = _integer(config, "num_attention_heads")
    head_dim = config.get("head_dim") or _integer(config, "hidden_size") // heads
    local_theta = config.get("rope_local_base_freq")
    scale = config.get("query_pre_attn_scalar") if model_type in ("gemma2", "gemma3_text") else None
    rope = _read_rope(config)
    return ModelConfig(
        model_type=model_type,
        vocab_size=_integer(config, "vocab_size"),
        hidden_size=_integer(config, "hidden_size"),
        intermediate_size=_integer(config, "intermediate_size"),
        num_layers=_integer(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        max_position_embeddings=_integer(config, "max_position_embeddings"),
        norm_eps=config.get("rms_norm_eps", 1e-6),
        norm_offset=1.0 if gemma else 0.0,
        post_norms=model_type in ("gemma2", "gemma3_text"),
        qk_norm=model_type in ("qwen3", "gemma3_text"),
        activation=_activation(config.get("hidden_activation") or config.get("hidden_act") or "silu"),
        rope=rope["full"],
        local_rope=RopeConfig(theta=local_theta) if local_theta else rope.get("local"),
        windows=_windows(config, model_type),
        attention_scale=(scale or head_dim) ** -0.5,
        attention_softcap=config.get("attn_logit_softcapping"),
        logit_softcap=config.get("final_logit_softcapping"),
        embedding_scale=_integer(config, "hidden_size") ** 0.5 if gemma else 1.0,
        tie_word_embeddings=config.get("tie_word_embeddings", gemma),
    )


def _read_gpt2(config: Mapping[str, Any]) -> ModelConfig:
    hidden = _integer(config, "n_embd")
    heads = _integer(config, "n_head")
    layers = _integer(config, "n_layer")
    return ModelConfig(
        model_type="gpt2",
        vocab_size=_integer(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.get("n_inner") or 4 * hidden,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=_integer(config, "n_positions"),
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        norm="layer",
        gated=False,
        activation=_activation(config.get("activation_function", "gelu_new")),
        rope=None,
        windows=(FULL,) * layers,
        attention_scale=(hidden // heads) ** -0.5,
        tie_word_embeddings=True,
    )


def _read_rope(config: Mapping[str, Any]) -> dict[str, RopeConfig]:
    """Read the parameters of full and of windowed layers. Old and new versions of transformers use different keys."""
    parameters = config.get("rope_parameters") or {}
    if "full_attention" in parameters:  # one set for each kind of layer
        kinds = {"full": parameters["full_attention"], "local": parameters.get("sliding_attention")}
    else:
        scaling = parameters or config.get("rope_scaling") or {}
        kinds = {"full": {"rope_theta": config.get("rope_theta", 10000.0), **scaling}}
    return {
        kind: RopeConfig(theta=float(values.get("rope_theta", 10000.0)), scaling=_scaling(values))
        for kind, values in kinds.items()
        if values
    }


def _scaling(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    kind = values.get("rope_type") or values.get("type") or "default"
    return None if kind == "default" else {**values, "rope_type": kind}


def _windows(config: Mapping[str, Any], model_type: str) -> tuple[int, ...]:
    layers = _integer(config, "num_hidden_layers")
    window = config.get("sliding_window") or FULL
    if model_type in ("qwen2", "qwen3") and not config.get("use_sliding_window"):
        window = FULL
    kinds = config.get("layer_types")
    if kinds:
        return tuple(window if kind == "sliding_attention" else FULL for kind in kinds)
    if model_type == "gemma2":
        return tuple(window if layer % 2 == 0 else FULL for layer in range(layers))
    if model_type == "gemma3_text":
        pattern = config.get("sliding_window_pattern", 6)
        return tuple(FULL if (layer + 1) % pattern == 0 else window for layer in range(layers))
    return (window if model_type in ("mistral", "qwen2", "qwen3") else FULL,) * layers


def _activation(name: str) -> Literal["silu", "gelu_tanh", "gelu"]:
    if name not in _ACTIVATIONS:
        raise ValueError(
            f"the torch engine does not support the activation {name!r}; it supports {', '.join(_ACTIVATIONS)}"
        )
    return _ACTIVATIONS[name]


def _integer(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"config.json must have a positive integer for {key!r}, got {value!r}")
    return value
