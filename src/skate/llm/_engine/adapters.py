"""LoRA adapters: low-rank matrices that are added to those of the model for some rows of a step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from skate.llm._engine.json_files import read_json
from skate.llm._engine.linear import Linear
from skate.llm._engine.model_config import ModelConfig
from skate.llm._engine.weights import weights_digest

_NAME = re.compile(r"(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<side>[AB])\.(?:default\.)?weight")
_numbers = itertools.count()
_MODULE = re.compile(r"model\.layers\.(?P<layer>\d+)\.(?P<part>self_attn\.\w+|mlp\.\w+)")


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """A loaded adapter.

    Args:
        name: The name that requests use.
        number: Distinguishes adapters that were loaded under the same name.
        factors: For each module, by its name in Llama's checkpoints, the two matrices whose product is added. The
            second one includes the scale.
        digest: Equal for adapters with equal factors, also in other processes.
    """

    name: str
    number: int
    factors: dict[str, tuple[torch.Tensor, torch.Tensor]]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class AdaptedRows:
    """The rows of a step that use an adapter."""

    adapter: Adapter
    rows: torch.Tensor


class Projection:
    """One product for one or several matrices of a layer that have the same input, to which adapters are added.

    Args:
        linear: The product. It concatenates the outputs of the matrices.
        modules: The name of each matrix, and the size of its output.
    """

    def __init__(self, linear: Linear, modules: Sequence[tuple[str, int]]) -> None:
        self._linear = linear
        self._modules = []
        start = 0
        for name, size in modules:
            self._modules.append((name, slice(start, start + size)))
            start += size

    def __call__(self, rows: torch.Tensor, adapted: Sequence[AdaptedRows]) -> torch.Tensor:
        """Return the product for each row."""
        output = self._linear(rows)
        for each in adapted:
            for name, columns in self._modules:
                factors = each.adapter.factors.get(name)
                if factors is not None:
                    down, up = factors
                    output[each.rows, columns] += (rows[each.rows] @ down) @ up
        return output


def load_adapter(
    name: str, folder: Path, config: ModelConfig, *, device: torch.device, dtype: torch.dtype
) -> Adapter:
    """Load an adapter from a folder that peft has written.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the adapter is not a LoRA, or uses a feature that the engine does not have.
    """
    from safetensors import safe_open

    settings = _read_settings(folder)
    unsupported = [
        key for key in ("use_dora", "modules_to_save", "alora_invocation_tokens") if settings.get(key)
    ]
    if unsupported:
        raise ValueError(
            f"the adapter in {folder} uses {unsupported[0]}, which the torch engine does not support"
        )
    path = folder / "adapter_model.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    sides: dict[str, dict[str, torch.Tensor]] = {}
    with safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 - the file is not a mapping
            match = _NAME.fullmatch(key)
            if match is None:
                raise ValueError(f"{path} has a tensor {key!r}, which is not part of a LoRA adapter")
            sides.setdefault(match["module"], {})[match["side"]] = file.get_tensor(key)
    factors = {}
    for module, matrices in sides.items():
        if matrices.keys() != {"A", "B"}:
            raise ValueError(f"{path} has only one of the two matrices of {module!r}")
        down, up = matrices["A"], matrices["B"]
        _check_shapes(path, module, down, up, config)
        scale = _scale(settings, module, down.shape[0])
        factors[module] = (
            down.t().to(device, dtype).contiguous(),
            (up.t() * scale).to(device, dtype).contiguous(),
        )
    digest = weights_digest(
        (
            (f"{module}.{side}", factor)
            for module in factors
            for side, factor in zip("AB", factors[module], strict=True)
        ),
        dtype,
    )
    return Adapter(name, next(_numbers), factors, digest)


def check_adapter(folder: Path, weights: Mapping[str, tuple[int, ...]]) -> None:
    """Check that an adapter fits a model, without loading it.

    Args:
        folder: A folder that peft has written.
        weights: The shapes of the model's weights by name. Matrices of other modules are not checked.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the adapter is not a LoRA, or its matrices do not fit the weights.
    """
    from safetensors import safe_open

    settings = _read_settings(folder)
    path = folder / "adapter_model.safetensors"
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    with safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 - the file is no mapping
            match = _NAME.fullmatch(key)
            weight = None if match is None else weights.get(f"{match['module']}.weight")
            if match is None or weight is None or len(weight) != 2:
                continue
            shape = tuple(file.get_slice(key).get_shape())
            outputs, inputs = weight[::-1] if settings.get("fan_in_fan_out") else weight
            if (shape[-1] != inputs) if match["side"] == "A" else (shape[0] != outputs):
                raise ValueError(
                    f"{path} adapts {match['module']!r} with a matrix {match['side']} of shape {shape}, but it has "
                    f"{inputs} inputs and {outputs} outputs"
                )


def _read_settings(folder: Path) -> dict[str, Any]:
    settings = read_json(folder / "adapter_config.json")
    if settings.get("peft_type") != "LORA":
        raise ValueError(
            f"the adapter in {folder} is of type {settings.get('peft_type')!r}; only LORA is supported"
        )
    return settings


def _scale(settings: Mapping[str, Any], module: str, rank: int) -> float:
    alphas = settings.get("alpha_pattern") or {}
    alpha = next(
        (value for key, value in alphas.items() if module.endswith(key)), settings.get("lora_alpha", rank)
    )
    return float(alpha) / (rank**0.5 if settings.get("use_rslora") else rank)


def _check_shapes(path: Path, module: str, down: torch.Tensor, up: torch.Tensor, config: ModelConfig) -> None:
    """Check that the matrices fit the model, so that a wrong adapter does not fail a step with other requests."""
    match = _MODULE.fullmatch(module)
    sizes = (
        None
        if match is None or int(match["layer"]) >= config.num_layers
        else _sizes(config).get(match["part"])
    )
    if sizes is None:
        raise ValueError(f"{path} adapts {module!r}, which this {config.model_type} model does not have")
    inputs, outputs = sizes
    if down.shape[1] != inputs or up.shape[0] != outputs or down.shape[0] != up.shape[1]:
        raise ValueError(
            f"{path} adapts {module!r} with matrices of shapes {tuple(down.shape)} and {tuple(up.shape)}, but it "
            f"has {inputs} inputs and {outputs} outputs"
        )


def _sizes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return the inputs and outputs of each matrix of a layer."""
    hidden, inner = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    return {
        "self_attn.q_proj": (hidden, heads),
        "self_attn.k_proj": (hidden, kv_heads),
        "self_attn.v_proj": (hidden, kv_heads),
        "self_attn.o_proj": (heads, hidden),
        "mlp.gate_proj": (hidden, inner),
        "mlp.up_proj": (hidden, inner),
        "mlp.down_proj": (inner, hidden),
    }
