"""Rotary position embeddings: the table of cosines and sines, and the rotation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from skate.llm._engine.model_config import RopeConfig


def rotation_table(config: RopeConfig, head_dim: int, length: int, device: torch.device) -> torch.Tensor:
    """Return cosines and sines of every position, with shape `(length, 2, head_dim)`.

    The sines of the first half are negated, so that a rotation is two multiplications and a swap of halves.
    """
    frequencies, magnitude = _frequencies(config, head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    cosines = torch.cat((angles.cos(), angles.cos()), dim=-1)
    sines = torch.cat((-angles.sin(), angles.sin()), dim=-1)
    return (torch.stack((cosines, sines), dim=1) * magnitude).to(device)


def rotate(heads: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
    """Rotate heads of shape `(tokens, heads, head_dim)` by the rows of the table at their positions."""
    cosines, sines = rotations[:, 0:1], rotations[:, 1:2]
    half = heads.shape[-1] // 2
    return heads * cosines + heads.roll(half, dims=-1) * sines


def _frequencies(config: RopeConfig, head_dim: int) -> tuple[torch.Tensor, float]:
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    plain = 1.0 / (config.theta**exponents)
    if config.scaling is None:
        return plain, 1.0
    kind = config.scaling["rope_type"]
    if kind == "linear":
        return plain / _number(config.scaling, "factor"), 1.0
    if kind == "llama3":
        return _llama3(plain, config.scaling), 1.0
    if kind == "yarn":
        return _yarn(plain, config, head_dim)
    raise ValueError(
        f"the torch engine does not support rope_scaling of type {kind!r}; it supports linear, llama3, yarn"
    )


def _llama3(plain: torch.Tensor, scaling: Mapping[str, Any]) -> torch.Tensor:
    """Stretch long wavelengths by `factor`, keep short ones, and interpolate between them."""
    factor, original = _number(scaling, "factor"), _number(scaling, "original_max_position_embeddings")
    low, high = _number(scaling, "low_freq_factor"), _number(scaling, "high_freq_factor")
    wavelengths = 2 * math.pi / plain
    keep = ((original / wavelengths - low) / (high - low)).clamp(0, 1)
    return plain * keep + plain / factor * (1 - keep)


def _yarn(plain: torch.Tensor, config: RopeConfig, head_dim: int) -> tuple[torch.Tensor, float]:
    """Interpolate by how often a frequency turns within the original context, and increase the attention scores."""
    scaling = config.scaling or {}
    factor, original = _number(scaling, "factor"), _number(scaling, "original_max_position_embeddings")

    def index_of(turns: float) -> float:
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low, high = index_of(scaling.get("beta_fast", 32)), index_of(scaling.get("beta_slow", 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    stretch = ((torch.arange(head_dim // 2).float() - low) / max(high - low, 0.001)).clamp(0, 1)
    magnitude = scaling.get("attention_factor") or (0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
    return plain / factor * stretch + plain * (1 - stretch), magnitude


def _number(scaling: Mapping[str, Any], key: str) -> float:
    if key not in scaling:
        raise ValueError(f"rope_scaling of type {scaling['rope_type']!r} needs the key {key!r}")
    return float(scaling[key])
