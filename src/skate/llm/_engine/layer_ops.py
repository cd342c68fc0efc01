"""The operations between the matrix products of a layer, which a device may fuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch.nn import functional

Activation = Literal["silu", "gelu_tanh", "gelu"]


@dataclass(frozen=True, slots=True)
class Norm:
    """A root-mean-square norm, or a layer norm if it has a bias, over the last dimension."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    eps: float


class LayerOps(Protocol):
    """The operations between the matrix products of a layer."""

    def norm(self, values: torch.Tensor, norm: Norm) -> torch.Tensor:
        """Return the normalised values."""
        ...

    def add_norm(
        self, hidden: torch.Tensor, update: torch.Tensor, norm: Norm
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the hidden states and their update, and the normalised sum."""
        ...

    def gate(self, projected: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Return the product of the activated first half of each row and its second half."""
        ...


class TorchLayerOps:
    """One operation of torch for each step."""

    def norm(self, values: torch.Tensor, norm: Norm) -> torch.Tensor:
        """Return the normalised values."""
        if norm.bias is not None:
            return functional.layer_norm(values, norm.weight.shape, norm.weight, norm.bias, norm.eps)
        return functional.rms_norm(values, norm.weight.shape, norm.weight, norm.eps)

    def add_norm(
        self, hidden: torch.Tensor, update: torch.Tensor, norm: Norm
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sum of the hidden states and their update, and the normalised sum."""
        hidden = hidden + update
        return hidden, self.norm(hidden, norm)

    def gate(self, projected: torch.Tensor, activation: Activation) -> torch.Tensor:
        """Return the product of the activated first half of each row and its second half."""
        first, second = projected.chunk(2, dim=-1)
        return activate(first, activation) * second


def activate(values: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Apply the activation of an MLP."""
    match activation:
        case "silu":
            return functional.silu(values)
        case "gelu":
            return functional.gelu(values)
        case "gelu_tanh":
            return functional.gelu(values, approximate="tanh")
