"""One decoder for Llama, Mistral, Qwen, Gemma and GPT-2, whose differences are in the model's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from skate.llm._engine.adapters import AdaptedRows, Projection
from skate.llm._engine.attention import Attention, AttentionRow, KVCache, PagedAttention
from skate.llm._engine.layer_ops import LayerOps, Norm, TorchLayerOps, activate
from skate.llm._engine.linear import MakeHead, MakeLinear
from skate.llm._engine.model_config import FULL, ModelConfig
from skate.llm._engine.rope import rotation_table
from skate.llm._engine.weights import weights_digest

_EXAMPLE = 16  # tokens that show which inputs of the head are large


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer."""

    attention_norm: Norm
    qkv: Projection
    attention_output: Projection
    mlp_norm: Norm
    mlp_input: Projection  # the gate and the projection side by side, if the MLP is gated
    mlp_output: Projection
    query_norm: Norm | None
    key_norm: Norm | None
    attention_post_norm: Norm | None
    mlp_post_norm: Norm | None


class Decoder:
    """A decoder-only model.

    Args:
        config: The shape of the model.
        weights: Tensors by the names that Llama's checkpoints use.
        make_linear: Lays out a weight and a bias for the device.
        make_head: Lays out the weight of the output layer, given its inputs for some example tokens; None uses
            `make_linear`.
        device: Where to put the weights.
        dtype: The type of weights and activations.
        max_length: The longest sequence.
        ops: The operations between the matrix products; None uses torch's.

    Raises:
        ValueError: If a tensor is missing or has the wrong shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        *,
        make_linear: MakeLinear,
        device: torch.device,
        dtype: torch.dtype,
        max_length: int,
        make_head: MakeHead | None = None,
        ops: LayerOps | None = None,
    ) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self.digest = weights_digest(
            weights.items(), config
        )  # equal for equal weights, also in other processes
        self._ops: LayerOps = TorchLayerOps() if ops is None else ops
        load = _WeightReader(config, weights, make_linear, device, dtype)
        self._embeddings = load.tensor("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
        self._layers = [load.layer(index) for index in range(config.num_layers)]
        self._norm = load.norm("model.norm", config.hidden_size)
        self._rotations: torch.Tensor | None = None
        self._local_rotations: torch.Tensor | None = None
        self._learned_positions: torch.Tensor | None = None
        if config.rope is None:
            shape = (config.max_position_embeddings, config.hidden_size)
            self._learned_positions = load.tensor("model.embed_positions.weight", shape)
        else:
            self._rotations = rotation_table(config.rope, config.head_dim, max_length, device)
        if config.local_rope is not None:
            self._local_rotations = rotation_table(config.local_rope, config.head_dim, max_length, device)
        head = load.head(self._embeddings)
        self._head = (
            make_linear(head, None) if make_head is None else make_head(head, self._example(max_length))
        )

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attention: Attention,
        adapted: Sequence[AdaptedRows] = (),
    ) -> torch.Tensor:
        """Return the last hidden state of each token, before the head.

        Args:
            tokens: The tokens of a step.
            positions: The position of each in its sequence.
            attention: Attention over the sequences that they belong to.
            adapted: The rows that use an adapter.
        """
        hidden = functional.embedding(tokens, self._embeddings)
        if self.config.embedding_scale != 1.0:
            hidden = hidden * torch.tensor(self.config.embedding_scale, dtype=self.dtype)
        if self._learned_positions is not None:
            hidden = hidden + functional.embedding(positions, self._learned_positions)
        rotations = None if self._rotations is None else self._rotations[positions]
        local = rotations if self._local_rotations is None else self._local_rotations[positions]
        normed = self._ops.norm(hidden, self._layers[0].attention_norm)
        for index, layer in enumerate(self._layers):
            rotation = rotations if self.config.windows[index] == FULL else local
            attended = self._attend(index, layer, normed, rotation, attention, adapted)
            hidden, normed = self._add(hidden, attended, layer.attention_post_norm, layer.mlp_norm)
            projected = self._mlp(layer, normed, adapted)
            is_last = index + 1 == len(self._layers)
            next_norm = self._norm if is_last else self._layers[index + 1].attention_norm
            hidden, normed = self._add(hidden, projected, layer.mlp_post_norm, next_norm)
        return normed

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token. `logits_of_scores` converts them to logits."""
        return self._head(hidden)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits of the next token for hidden states."""
        return self.logits_of_scores(self._head(hidden))

    def logits_of_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits for the scores that `head` has returned."""
        logits = scores.float()
        softcap = self.config.logit_softcap
        return logits if softcap is None else torch.tanh(logits / softcap) * softcap

    @torch.inference_mode()
    def _example(self, max_length: int) -> torch.Tensor:
        """Return the last hidden states of tokens spread over the vocabulary."""
        count = min(_EXAMPLE, max_length)
        cache = KVCache(self.config, 1, count, self.dtype, self.device)
        attention = PagedAttention(self.config, cache, [AttentionRow(0, count, [0])])
        tokens = torch.linspace(0, self.config.vocab_size - 1, count).long()
        return self.forward(tokens, torch.arange(count), attention)

    def _add(
        self, hidden: torch.Tensor, update: torch.Tensor, post_norm: Norm | None, next_norm: Norm
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the updated hidden states, and their values after the next norm."""
        if post_norm is not None:
            update = self._ops.norm(update, post_norm)
        return self._ops.add_norm(hidden, update, next_norm)

    def _attend(
        self,
        index: int,
        layer: Layer,
        normed: torch.Tensor,
        rotations: torch.Tensor | None,
        attention: Attention,
        adapted: Sequence[AdaptedRows],
    ) -> torch.Tensor:
        config = self.config
        count = normed.shape[0]
        heads = layer.qkv(normed, adapted).view(count, -1, config.head_dim)
        last_key = config.num_heads + config.num_kv_heads
        queries, keys, values = (
            heads[:, : config.num_heads],
            heads[:, config.num_heads : last_key],
            heads[:, last_key:],
        )
        if layer.query_norm is not None and layer.key_norm is not None:
            queries = self._ops.norm(queries, layer.query_norm)
            keys = self._ops.norm(keys, layer.key_norm)
        attended = attention.attend(index, queries, keys, values, rotations)
        return layer.attention_output(attended.reshape(count, -1), adapted)

    def _mlp(self, layer: Layer, normed: torch.Tensor, adapted: Sequence[AdaptedRows]) -> torch.Tensor:
        projected = layer.mlp_input(normed, adapted)
        activation = self.config.activation
        gated = (
            self._ops.gate(projected, activation) if self.config.gated else activate(projected, activation)
        )
        return layer.mlp_output(gated, adapted)


class _WeightReader:
    """Takes tensors from a checkpoint, checks their shapes and lays them out."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor],
        make_linear: MakeLinear,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._config = config
        self._weights = weights
        self._make_linear = make_linear
        self._device = device
        self._dtype = dtype

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Return a tensor that the model must have."""
        if name not in self._weights:
            raise ValueError(f"the checkpoint of this {self._config.model_type} model has no tensor {name!r}")
        tensor = self._weights[name]
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"the tensor {name!r} has shape {tuple(tensor.shape)}, but config.json says it has {shape}"
            )
        return tensor.to(self._device, self._dtype)

    def norm(self, name: str, size: int) -> Norm:
        """Return a norm that the model must have."""
        weight = self.tensor(f"{name}.weight", (size,))
        bias = self.tensor(f"{name}.bias", (size,)) if self._config.norm == "layer" else None
        if self._config.norm_offset:
            weight = weight.float() + self._config.norm_offset  # exact: a sum in bfloat16 loses digits
        return Norm(weight, bias, self._config.norm_eps)

    def projection(self, names: Iterable[str], sizes: Iterable[int], inputs: int) -> Projection:
        """Return one product for several matrices with the same input, whose outputs lie side by side."""
        named_sizes = tuple(zip(names, sizes, strict=True))
        weights = [self.tensor(f"{name}.weight", (size, inputs)) for name, size in named_sizes]
        has_bias = [f"{name}.bias" in self._weights for name, _ in named_sizes]
        bias = None
        if any(has_bias):
            bias = torch.cat([self.tensor(f"{name}.bias", (size,)) for name, size in named_sizes])
        linear = self._make_linear(torch.cat(weights) if len(weights) > 1 else weights[0], bias)
        return Projection(linear, named_sizes)

    def head(self, embeddings: torch.Tensor) -> torch.Tensor:
        """Return the weight that gives logits: the embeddings, if the model ties them."""
        name = "lm_head.weight"
        if self._config.tie_word_embeddings or name not in self._weights:
            return embeddings
        return self.tensor(name, (self._config.vocab_size, self._config.hidden_size))

    def layer(self, index: int) -> Layer:
        """Return the weights of a layer."""
        config, prefix = self._config, f"model.layers.{index}"
        hidden, heads = config.hidden_size, config.num_heads * config.head_dim
        kv_heads = config.num_kv_heads * config.head_dim
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        inputs = ("gate_proj", "up_proj") if config.gated else ("up_proj",)
        before_mlp = "pre_feedforward_layernorm" if config.post_norms else "post_attention_layernorm"
        return Layer(
            attention_norm=self.norm(f"{prefix}.input_layernorm", hidden),
            qkv=self.projection(
                [f"{attention}.{name}_proj" for name in "qkv"], (heads, kv_heads, kv_heads), hidden
            ),
            attention_output=self.projection([f"{attention}.o_proj"], [hidden], heads),
            mlp_norm=self.norm(f"{prefix}.{before_mlp}", hidden),
            mlp_input=self.projection(
                [f"{mlp}.{name}" for name in inputs], [config.intermediate_size] * len(inputs), hidden
            ),
            mlp_output=self.projection([f"{mlp}.down_proj"], [hidden], config.intermediate_size),
            query_norm=self._head_norm(f"{attention}.q_norm"),
            key_norm=self._head_norm(f"{attention}.k_norm"),
            attention_post_norm=self._post_norm(f"{prefix}.post_attention_layernorm"),
            mlp_post_norm=self._post_norm(f"{prefix}.post_feedforward_layernorm"),
        )

    def _head_norm(self, name: str) -> Norm | None:
        return self.norm(name, self._config.head_dim) if self._config.qk_norm else None

    def _post_norm(self, name: str) -> Norm | None:
        return self.norm(name, self._config.hidden_size) if self._config.post_norms else None
