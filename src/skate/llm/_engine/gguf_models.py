"""Models in GGUF files: their configuration and tensors, with the names that Hugging Face's checkpoints use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from skate._base.suggestions import did_you_mean
from skate.llm._engine.gguf import GGUFFile
from skate.llm._engine.gguf_tokenizer import token_id

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

_MODEL = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA_LAYER = {
    **_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GPT2_MODEL = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
}
_GPT2_LAYER = {
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_SKIPPED = {"rope_freqs"}  # part of the configuration
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


@dataclass(frozen=True, kw_only=True)
class _Architecture:
    """How the GGUF files of an architecture differ from Hugging Face's checkpoints."""

    model_type: str
    activation: str = "silu"
    model: dict[str, str] = field(default_factory=lambda: _MODEL)
    layer: dict[str, str] = field(default_factory=lambda: _LAYER)
    layers: str = "model.layers"
    interleaved: bool = (
        False  # rows of queries and keys are ordered as in the original Llama's rotary embedding
    )
    one_plus_norm: bool = False  # 1 was added to the weights of norms
    window_pattern: int | None = None  # one layer in this many has full attention
    wide_scale_layers: int | None = (
        None  # a model with this many layers scales queries by hidden size / heads
    )
    transposed: bool = False  # Hugging Face stores these weights as [inputs, outputs]


_GEMMA = _Architecture(model_type="gemma", activation="gelu_pytorch_tanh", one_plus_norm=True)
_LATER_GEMMA = replace(_GEMMA, layer=_GEMMA_LAYER)
_ARCHITECTURES = {
    "llama": _Architecture(model_type="llama", interleaved=True),
    "qwen2": _Architecture(model_type="qwen2"),
    "qwen3": _Architecture(model_type="qwen3"),
    "gemma": _GEMMA,
    "gemma2": replace(_LATER_GEMMA, model_type="gemma2", window_pattern=2, wide_scale_layers=46),
    "gemma3": replace(_LATER_GEMMA, model_type="gemma3_text", window_pattern=6, wide_scale_layers=62),
    "gpt2": _Architecture(
        model_type="gpt2",
        activation="gelu_new",
        model=_GPT2_MODEL,
        layer=_GPT2_LAYER,
        layers="transformer.h",
        transposed=True,
    ),
}


class GGUFModel:
    """The model in a GGUF file.

    Attributes:
        config: The configuration, as in Hugging Face's config.json.
        generation_config: The generation settings, as in generation_config.json.

    Raises:
        ValueError: If the architecture is not supported, or the metadata is incomplete.
    """

    def __init__(self, file: GGUFFile) -> None:
        self.file = file
        name = file.metadata.get("general.architecture")
        if not isinstance(name, str) or name not in _ARCHITECTURES:
            raise ValueError(
                f"{file.path} has a model of architecture {name!r}, which is not supported. Supported architectures are"
                f" {', '.join(_ARCHITECTURES)}.{did_you_mean(str(name), _ARCHITECTURES)}"
            )
        if file.metadata.get("split.count", 1) not in (0, 1):
            raise ValueError(f"{file.path} is one part of a model: merge the parts with llama-gguf-split")
        self._name: str = name
        self._architecture = _ARCHITECTURES[name]
        self.config = self._read_config()
        self.generation_config = self._read_generation_config()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield each tensor as float32, with its name in Hugging Face's checkpoint."""
        import torch

        for name in self.file.tensors:
            target = self._target(name)
            if target is not None:
                yield target, torch.from_numpy(self._restore(target, self.file.read(name)))

    def _target(self, name: str) -> str | None:
        stem, _, suffix = name.rpartition(".")
        if stem in _SKIPPED:
            return None
        if stem in self._architecture.model:
            return f"{self._architecture.model[stem]}.{suffix}"
        _, _, rest = stem.partition("blk.")
        number, _, part = rest.partition(".")
        if not number.isdecimal() or part not in self._architecture.layer:
            raise ValueError(f"{self.file.path} has tensor {name!r}, which {self._name} models do not have")
        return f"{self._architecture.layers}.{number}.{self._architecture.layer[part]}.{suffix}"

    def _restore(self, target: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Undo the changes that the conversion to GGUF made to a tensor."""
        import numpy as np

        if self._architecture.one_plus_norm and target.endswith("norm.weight"):
            return values - np.float32(1)
        if self._architecture.transposed and ".c_" in target and target.endswith("weight"):
            return np.ascontiguousarray(values.T)
        heads = None
        if self._architecture.interleaved and ".q_proj." in target:
            heads = self.config["num_attention_heads"]
        if self._architecture.interleaved and ".k_proj." in target:
            heads = self.config["num_key_value_heads"]
        if heads is None:
            return values
        if values.shape[0] % (2 * heads):
            raise ValueError(f"{self.file.path}: {target} has {values.shape[0]} rows for {heads} heads")
        # In the file, two rows that are rotated together are adjacent; in Hugging Face's order, they are half a head
        # apart.
        return values.reshape(heads, -1, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)

    def _value(self, key: str) -> Any:
        value = self.file.metadata.get(f"{self._name}.{key}")
        if isinstance(value, list) and value and all(each == value[0] for each in value):
            return value[0]  # one number for each layer
        return value

    def _integer(self, key: str, default: int | None = None) -> int:
        """Return a positive integer. Without a default, the file must contain it."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{self.file.path}: {self._name}.{key} must be a positive number, got {value!r}")
        return value

    def _number(self, key: str, default: float | None = None) -> float:
        """Return a positive number. Without a default, the file must contain it."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, float | int) or not 0 < value < math.inf:
            raise ValueError(f"{self.file.path}: {self._name}.{key} must be a positive number, got {value!r}")
        return _shortest(value)

    def _read_config(self) -> dict[str, Any]:
        tensors = self.file.tensors
        if "token_embd.weight" not in tensors:
            raise ValueError(
                f"{self.file.path} has no tensor 'token_embd.weight': it may contain only a vocabulary"
            )
        if self._value("expert_count"):
            raise ValueError(f"{self.file.path} has a mixture of experts, which is not supported")
        heads = self._integer("attention.head_count")
        hidden = self._integer("embedding_length")
        layers = self._integer("block_count")
        if f"blk.{layers - 1}.attn_norm.weight" not in tensors:
            raise ValueError(f"{self.file.path} should have {layers} layers, but the last one is missing")
        head_dim = self._integer("attention.key_length", hidden // heads)
        config: dict[str, Any] = {
            "model_type": self._architecture.model_type,
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": self._integer("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "intermediate_size": self._integer("feed_forward_length"),
            "vocab_size": tensors["token_embd.weight"].shape[0],
            "max_position_embeddings": self._integer("context_length"),
            "hidden_act": self._architecture.activation,
            "tie_word_embeddings": "output.weight" not in tensors,
            "attention_bias": "blk.0.attn_q.bias" in tensors,
            "torch_dtype": "float32",
            **self._token_ids(),
        }
        if self._name == "gpt2":
            return config | self._gpt2_config(config)
        config["rms_norm_eps"] = self._number("attention.layer_norm_rms_epsilon")
        config["rope_theta"] = self._number("rope.freq_base", 10000.0)
        config["rope_scaling"] = self._rope_scaling(head_dim, config["rope_theta"])
        rotated = self._integer("rope.dimension_count", head_dim)
        if rotated != head_dim:
            config["partial_rotary_factor"] = rotated / head_dim
        if self._name.startswith("gemma"):
            config |= self._gemma_config(config)
        elif window := self._value("attention.sliding_window"):
            config |= {"sliding_window": window, "use_sliding_window": True}
            if self._name == "llama":
                config["model_type"] = "mistral"
        return config

    def _token_ids(self) -> dict[str, Any]:
        found = {kind: token_id(self.file, kind) for kind in ("bos", "eos", "eot", "eom", "padding")}
        ends = [found[kind] for kind in ("eos", "eot", "eom") if found[kind] is not None]
        return {
            "bos_token_id": found["bos"],
            "eos_token_id": list(dict.fromkeys(ends)),
            "pad_token_id": found["padding"],
        }

    def _gpt2_config(self, config: dict[str, Any]) -> dict[str, Any]:
        return {
            "n_embd": config["hidden_size"],
            "n_layer": config["num_hidden_layers"],
            "n_head": config["num_attention_heads"],
            "n_inner": config["intermediate_size"],
            "n_positions": config["max_position_embeddings"],
            "activation_function": config["hidden_act"],
            "layer_norm_epsilon": self._number("attention.layer_norm_epsilon", 1e-5),
        }

    def _gemma_config(self, config: dict[str, Any]) -> dict[str, Any]:
        layers, pattern = config["num_hidden_layers"], self._architecture.window_pattern
        gemma: dict[str, Any] = {"hidden_activation": config["hidden_act"]}
        if pattern is None:
            return gemma
        # The file does not contain this number. Only the largest models differ from the default.
        wide = layers == self._architecture.wide_scale_layers
        gemma["query_pre_attn_scalar"] = (
            config["hidden_size"] // config["num_attention_heads"] if wide else config["head_dim"]
        )
        if self._name == "gemma2":
            gemma["final_logit_softcapping"] = self._number("final_logit_softcapping", 30.0)
            gemma["attn_logit_softcapping"] = self._number("attn_logit_softcapping", 50.0)
            window = self._integer("attention.sliding_window", 4096)
        else:
            capping = self._value("final_logit_softcapping")
            gemma["final_logit_softcapping"] = self._number("final_logit_softcapping") if capping else None
            gemma["rope_local_base_freq"] = self._number("rope.freq_base_swa", 10000.0)
            window = self._value("attention.sliding_window")
        gemma["sliding_window"] = window
        windowed = self.file.metadata.get(f"{self._name}.attention.sliding_window_pattern", pattern)
        if isinstance(windowed, int) and windowed > 0:
            windowed = [bool((layer + 1) % windowed) for layer in range(layers)]
        if not isinstance(windowed, list) or len(windowed) != layers:
            raise ValueError(
                f"{self.file.path}: {self._name}.attention.sliding_window_pattern is {windowed!r}"
            )
        kinds = ("full_attention", "sliding_attention")
        gemma["layer_types"] = [kinds[bool(window and each)] for each in windowed]
        return gemma

    def _rope_scaling(self, head_dim: int, theta: float) -> dict[str, Any] | None:
        if "rope_factors_long.weight" in self.file.tensors:
            raise ValueError(f"{self.file.path} has long-context rotary factors, which are not supported")
        if "rope_freqs.weight" in self.file.tensors:
            return self._llama3_scaling(head_dim, theta)
        kind = self._value("rope.scaling.type") or "linear"
        factor = self._number("rope.scaling.factor", self._number("rope.scale_linear", 1.0))
        if kind == "none" or factor == 1.0:
            return None
        scaling = {"rope_type": kind, "factor": factor}
        if self._value("rope.scaling.original_context_length"):
            original = self._integer("rope.scaling.original_context_length")
            scaling["original_max_position_embeddings"] = original
        return scaling

    def _llama3_scaling(self, head_dim: int, theta: float) -> dict[str, Any]:
        """Find the four parameters of Llama 3's scaling. The file contains only the resulting factors."""
        import numpy as np

        given = self.file.read("rope_freqs.weight").reshape(-1)
        unsupported = ValueError(f"{self.file.path} scales rotary frequencies in a way that is not supported")
        if 2 * len(given) != head_dim:
            raise unsupported
        factor = float(given.max())
        wavelengths = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
        low, high, original = 1.0, 4.0, 8192  # the same in all of these models
        smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
        if not np.allclose(1 / ((1 - smooth) / factor + smooth), given, rtol=1e-3):
            raise unsupported
        return {
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": original,
        }

    def _read_generation_config(self) -> dict[str, Any]:
        metadata = self.file.metadata
        sampling = {
            name: value if isinstance(value, int) else _shortest(value)
            for key, name in _SAMPLING.items()
            if isinstance(value := metadata.get(f"general.sampling.{key}"), int | float)
        }
        return sampling | {key: value for key, value in self._token_ids().items() if value is not None}


def _shortest(value: float) -> float:
    """Return the shortest decimal number that rounds to this float32: 1e-05 instead of 9.999999747378752e-06."""
    import numpy as np

    return float(str(np.float32(value)))
