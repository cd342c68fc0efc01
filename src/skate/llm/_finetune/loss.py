"""Losses of language models that keep the logits of only a few tokens in memory.

Logits are the largest tensor of training: for 4,096 tokens and a vocabulary of 128,000 they take 2 GB in float32, and
the plain cross-entropy needs several copies. Here the hidden states of the trained tokens pass through the output layer
in chunks, and the gradient of each chunk is computed while its logits are in memory. Losses are sums; the training loop
divides them by the number of tokens that all workers train in a step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

log = logging.getLogger(__name__)

IGNORED = -100  # the label of a token that is not trained
_LEAST_CHUNK = 1024  # tokens


class _ChunkedCrossEntropy(torch.autograd.Function):
    """The summed cross-entropy of a linear output layer. The forward pass also computes the gradients."""

    @staticmethod
    def forward(ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, size: int) -> Any:
        hidden_grad = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        weight_grad: Any = None
        bias_grad: Any = None
        total = torch.zeros((), dtype=torch.float32, device=hidden.device)
        for start in range(0, len(targets), size):
            part, target = hidden[start : start + size], targets[start : start + size, None]
            logits = functional.linear(part, weight, bias)
            log_probs = functional.log_softmax(logits, dim=-1, dtype=torch.float32)
            chosen = log_probs.gather(-1, target)
            total -= chosen.sum()
            if not any(ctx.needs_input_grad):
                continue
            # The gradient of the logits, in their memory: the probabilities, less 1 for the targets.
            grad = torch.exp(log_probs, out=logits)
            grad.scatter_(-1, target, torch.expm1(chosen).to(grad.dtype))
            if hidden_grad is not None:
                hidden_grad[start : start + size] = grad @ weight
            if ctx.needs_input_grad[1]:
                weight_grad = _sum_of_parts(weight_grad, grad.T @ part, is_only=len(targets) <= size)
            if bias is not None and ctx.needs_input_grad[2]:
                bias_grad = _sum_of_parts(bias_grad, grad.sum(0, dtype=torch.float32), is_only=False)
        if weight_grad is None and ctx.needs_input_grad[1]:
            weight_grad = torch.zeros_like(weight)
        if bias_grad is None and bias is not None and ctx.needs_input_grad[2]:
            bias_grad = torch.zeros_like(bias)
        ctx.save_for_backward(hidden_grad, weight_grad, bias_grad)
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        return total

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        hidden, weight, bias = ctx.saved_tensors
        weight_dtype, bias_dtype = ctx.dtypes
        return (
            None if hidden is None else hidden * grad.to(hidden.dtype),
            None if weight is None else (weight * grad).to(weight_dtype),
            None if bias is None else (bias * grad).to(bias_dtype),
            None,
            None,
        )


def _sum_of_parts(total: torch.Tensor | None, part: torch.Tensor, *, is_only: bool) -> torch.Tensor:
    """Add a part to a sum in float32. A single part is returned unchanged."""
    if total is None:
        return part if is_only else part.float()
    return total.add_(part)


def default_chunk_size(device: torch.device, vocabulary: int) -> int:
    """Return how many tokens to pass through the output layer at a time.

    Fewer chunks are faster, because each adds to the gradients of the weights. On a GPU, the logits may take a
    thirty-second of its memory.
    """
    if device.type != "cuda":
        return _LEAST_CHUNK
    affordable = torch.cuda.get_device_properties(device).total_memory // (32 * 4 * vocabulary)
    return max(_LEAST_CHUNK, affordable // _LEAST_CHUNK * _LEAST_CHUNK)


def chunked_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    chunk_size: int = 1024,
) -> torch.Tensor:
    """Return the summed cross-entropy of a linear output layer.

    Args:
        hidden: Hidden states, one row for each token.
        weight: The weight of the output layer, one row for each entry of the vocabulary.
        targets: The tokens to predict.
        bias: The bias of the output layer.
        chunk_size: The number of tokens whose logits are in memory at a time.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    result: torch.Tensor = _ChunkedCrossEntropy.apply(hidden, weight, bias, targets, chunk_size)  # type: ignore[no-untyped-call]
    return result


def token_losses(
    hidden: torch.Tensor, head: Callable[[Any], Any], targets: torch.Tensor, chunk_size: int
) -> torch.Tensor:
    """Return the cross-entropy of each token. The backward pass recomputes the logits chunk by chunk."""

    def losses(part: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(head(part).float(), target, reduction="none")

    if not len(targets):
        return hidden.sum(-1).float() * 0
    parts = zip(torch.split(hidden, chunk_size), torch.split(targets, chunk_size), strict=True)
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(losses, *each, use_reentrant=False) for each in parts])
    return torch.cat([losses(*each) for each in parts])


class LanguageModelLoss(torch.nn.Module):
    """A language model with its loss, as one module that DDP and FSDP can wrap.

    Args:
        model: A causal language model of transformers, or of peft around one.
        chunk_size: The number of tokens whose logits are in memory at a time.
    """

    def __init__(self, model: Any, *, chunk_size: int = 1024) -> None:
        super().__init__()
        self.model = model
        self.chunk_size = chunk_size
        plain = model.get_base_model() if hasattr(model, "get_base_model") else model
        # In tuples, so that the module does not register the parameters of `model` twice.
        self._parts: tuple[Any, Any] = (plain.get_decoder(), plain.get_output_embeddings())
        self._plain: tuple[Any] = (plain,)
        self.is_linear = (
            isinstance(self._parts[1], torch.nn.Linear) and type(self._parts[1]) is torch.nn.Linear
        )
        self.is_chunked = self._matches_model()

    def forward(self, input_ids: Any, position_ids: Any, labels: Any) -> Any:
        """Return the summed loss of the trained tokens."""
        if not self.is_chunked:
            logits = self.logits(input_ids, position_ids)
            kept = labels != IGNORED
            return functional.cross_entropy(logits[kept].float(), labels[kept], reduction="sum")
        hidden, targets = self._trained_states(input_ids, position_ids, labels)
        head = self._parts[1]
        if not self.is_linear:
            return token_losses(hidden, head, targets, self.chunk_size).sum()
        return chunked_cross_entropy(hidden, head.weight, targets, bias=head.bias, chunk_size=self.chunk_size)

    def logits(self, input_ids: Any, position_ids: Any) -> Any:
        """Return the logits of all tokens as the model computes them."""
        return self._plain[0](input_ids=input_ids, position_ids=position_ids, use_cache=False).logits

    def sequence_log_probs(self, input_ids: Any, position_ids: Any, labels: Any) -> Any:
        """Return the summed log-probability of the trained tokens in each line of a batch."""
        line = (labels != IGNORED).nonzero()[:, 0]
        if self.is_chunked:
            hidden, targets = self._trained_states(input_ids, position_ids, labels)
            losses = token_losses(hidden, self._parts[1], targets, self.chunk_size)
        else:
            kept = labels != IGNORED
            logits = self.logits(input_ids, position_ids)[kept].float()
            losses = functional.cross_entropy(logits, labels[kept], reduction="none")
        return torch.zeros(len(labels), device=losses.device).index_add(0, line, -losses.float())

    def _trained_states(self, input_ids: Any, position_ids: Any, labels: Any) -> tuple[Any, Any]:
        """Return the hidden states from which trained tokens are predicted, and these tokens."""
        decoder, _ = self._parts
        states = decoder(input_ids=input_ids, position_ids=position_ids, use_cache=False).last_hidden_state
        kept = labels != IGNORED
        return states[kept], labels[kept]

    @torch.no_grad()
    def _matches_model(self) -> bool:
        """Return whether the output of the output layer is the model's logits.

        Some models scale or cap their logits afterwards. These models compute the logits of all tokens at once.
        """
        decoder, head = self._parts
        if head is None:
            return False
        was_training = self.training
        self.eval()
        embedding = self._plain[0].get_input_embeddings().weight
        ids = torch.arange(min(4, len(embedding)), device=embedding.device)[None]
        positions = torch.arange(ids.shape[1], device=embedding.device)[None]
        with _without_autocast(embedding.device):
            expected = self.logits(ids, positions).float()
            found = head(
                decoder(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
            ).float()
        self.train(was_training)
        same = bool(torch.allclose(expected, found, rtol=1e-3, atol=1e-3))
        if not same:
            log.warning(
                "%s changes its logits after the output layer, so they are computed for all tokens at once, which "
                "needs more memory.",
                type(self._plain[0]).__name__,
            )
        return same


class PreferenceLoss(torch.nn.Module):
    """The loss of DPO, with the base model without its adapter as the reference.

    The first half of a batch has the preferred sequences, the second half the rejected ones, in the same order.

    Args:
        language_model: The loss of a peft model with a LoRA adapter.
        beta: How strongly the model is kept close to the reference.
    """

    def __init__(self, language_model: LanguageModelLoss, *, beta: float) -> None:
        super().__init__()
        self.language_model = language_model
        self.beta = beta

    def forward(self, input_ids: Any, position_ids: Any, labels: Any) -> Any:
        """Return the summed loss of the pairs, and the number of pairs that the model ranks correctly."""
        batch = input_ids, position_ids, labels
        # The reference is computed first, because disabling the adapter must not affect the graph of the trained model.
        with torch.no_grad(), self.language_model.model.disable_adapter():
            reference = self.language_model.sequence_log_probs(*batch)
        chosen, rejected = (self.language_model.sequence_log_probs(*batch) - reference).chunk(2)
        # A worker that has no rows in this step gets two sequences without trained tokens.
        real = (labels[: len(labels) // 2] != IGNORED).any(-1)
        margin = self.beta * (chosen - rejected)
        loss = (-functional.logsigmoid(margin) * real).sum()
        return loss, ((margin > 0) & real).sum().detach()


def _without_autocast(device: torch.device) -> AbstractContextManager[None]:
    return torch.autocast(device.type, enabled=False)
