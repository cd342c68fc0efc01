"""A decoder language model in plain torch: rotary positions, RMSNorm, SwiGLU, causal attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """How large a model is.

    The default has about 1.06 billion parameters.
    """

    vocabulary: int = 32_000
    width: int = 2048
    layers: int = 18
    heads: int = 16
    inner: int = 5632
    length: int = 2048

    def flops_of_a_token(self, parameters: int) -> float:
        """Return what training on one token takes: 6 for each parameter that multiplies, and causal attention.

        The embedding is a look-up and is left out; of the attention, only the half below the diagonal counts.
        """
        multiplying = parameters - self.vocabulary * self.width
        return 6 * multiplying + 6 * self.layers * self.width * self.length


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = nn.Linear(size.width, 3 * size.width, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """Return what each position sees."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).unbind(2)
        q, k = rotated(q, rotation), rotated(k, rotation)
        seen = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        out: torch.Tensor = self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return out


class Layer(nn.Module):
    """Attention, and a gated network."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.before_attention = nn.RMSNorm(size.width)
        self.attention = Attention(size)
        self.before_network = nn.RMSNorm(size.width)
        self.gate_and_up = nn.Linear(size.width, 2 * size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
        """Return the next layer's input."""
        x = x + self.attention(self.before_attention(x), rotation)
        gate, up = self.gate_and_up(self.before_network(x)).chunk(2, dim=-1)
        out: torch.Tensor = x + self.down(functional.silu(gate) * up)
        return out


class Decoder(nn.Module):
    """The whole model; its forward pass gives the loss of predicting each next token."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(size.vocabulary, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        half = size.width // size.heads // 2
        angles = torch.outer(torch.arange(size.length), 10_000.0 ** (-torch.arange(half) / half))
        self.register_buffer("rotation", torch.stack([angles.cos(), angles.sin()]), persistent=False)
        self.apply(_start)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss over sequences that have one token more than the model is long."""
        x = self.embedding(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x, self.rotation)
        scores = self.head(self.norm(x))
        return functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def rotated(x: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Return queries or keys, turned by their positions."""
    cos, sin = rotation[:, : x.shape[1], None, :].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def _start(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
