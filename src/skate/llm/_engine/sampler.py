"""Choosing the next token of a request from its logits.

Every row is processed alone, and its random number depends only on the seed of the request and on the position of the
token, so the choice does not depend on which other requests run. `RequestSampler` chooses for one request on the host;
`draw_tokens` draws for several at once on the device that has their logits.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from skate.llm._engine.api import SamplingParams, TokenLogprob

# Tokens that are examined before the whole vocabulary is sorted: nearly always enough for `top_p`.
_CANDIDATES = 256


class TokenMask(Protocol):
    """Determines which tokens a grammar allows next."""

    def apply(self, logits: torch.Tensor) -> None:
        """Set the logits of tokens that are not allowed to minus infinity."""
        ...

    def accept(self, token: int) -> None:
        """Advance by a token."""
        ...


@dataclass(frozen=True, slots=True)
class Draw:
    """How to draw a token from logits: parameters of the request, and a random number from 0 to 1."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    uniform: float


class RequestSampler:
    """Chooses the tokens of one request.

    Args:
        params: How to choose.
        seed: The request's seed.
        prompt: The tokens of the prompt, which `repetition_penalty` counts.
        stop_tokens: Tokens that end the request, which are not chosen before `min_tokens`.
        mask: The grammar's mask, if there is one.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        seed: int,
        prompt: Sequence[int],
        stop_tokens: Sequence[int],
        mask: TokenMask | None = None,
    ) -> None:
        self._params = params
        self._seed = seed
        self._mask = mask
        self._generated: Counter[int] = Counter()
        self._repeated = set(prompt) if params.repetition_penalty != 1.0 else set()
        self._stop_tokens = list(stop_tokens)
        self._counts_tokens = bool(
            params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1.0
        )
        self._bias: tuple[torch.Tensor, torch.Tensor] | None = None
        if params.logit_bias:
            self._bias = (
                torch.tensor(list(params.logit_bias)),
                torch.tensor(list(params.logit_bias.values())),
            )

        self.needs_host = bool(
            mask is not None
            or params.logprobs is not None
            or params.logit_bias
            or self._counts_tokens
            or params.min_tokens
        )
        """Whether a token depends on more than its logits, or the request needs more than the token."""
        self.is_plain_greedy = params.temperature == 0 and not self.needs_host
        """Whether the token is the one with the highest logit, and the request needs nothing else."""

    def draw(self, index: int) -> Draw:
        """Return what a device needs to choose token number `index` of the output."""
        params = self._params
        return Draw(params.temperature, params.top_k, params.top_p, params.min_p, _uniform(self._seed, index))

    def choose(self, logits: torch.Tensor, index: int) -> tuple[int, TokenLogprob | None]:
        """Choose token number `index` of the output from float32 logits of one dimension."""
        logits = self._processed(logits, index)
        temperature = self._params.temperature
        if temperature == 0:
            token = int(logits.argmax())
        else:
            logits = self._truncated(logits / temperature)
            token = _draw(logits, _uniform(self._seed, index))
        return token, self._logprob(logits, token)

    def accept(self, token: int) -> None:
        """Count a token that became part of the output."""
        if self._counts_tokens:
            self._generated[token] += 1
            self._repeated.add(token)
        if self._mask is not None:
            self._mask.accept(token)

    def _processed(self, logits: torch.Tensor, index: int) -> torch.Tensor:
        """Return logits after penalties, biases and masks."""
        if self.is_plain_greedy:
            return logits
        params, logits = self._params, logits.clone()
        if params.repetition_penalty != 1.0:
            repeated = torch.tensor(sorted(self._repeated))
            chosen = logits[repeated]
            penalty = params.repetition_penalty
            logits[repeated] = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
        if self._generated and (params.presence_penalty or params.frequency_penalty):
            tokens = torch.tensor(list(self._generated))
            counts = torch.tensor(list(self._generated.values()))
            logits[tokens] -= params.presence_penalty + params.frequency_penalty * counts
        if self._bias is not None:
            logits[self._bias[0]] += self._bias[1]
        if index < params.min_tokens:
            logits[self._stop_tokens] = -torch.inf
        if self._mask is not None:
            self._mask.apply(logits)
        return logits

    def _truncated(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits in which tokens outside `top_k`, `top_p` and `min_p` are minus infinity."""
        params = self._params
        if params.min_p > 0:
            limit = logits.max() + torch.log(torch.tensor(params.min_p))
            logits = logits.masked_fill(logits < limit, -torch.inf)
        if 0 < params.top_k < logits.shape[0]:
            limit = logits.topk(params.top_k).values[-1]
            logits = logits.masked_fill(logits < limit, -torch.inf)
        if params.top_p < 1.0:
            logits = logits.masked_fill(logits < _nucleus_limit(logits, params.top_p), -torch.inf)
        return logits

    def _logprob(self, logits: torch.Tensor, token: int) -> TokenLogprob | None:
        """Return log-probabilities in the distribution that was sampled from."""
        count = self._params.logprobs
        if count is None:
            return None
        normaliser = logits.logsumexp(dim=-1)
        top: tuple[tuple[int, float], ...] = ()
        if count:
            best = logits.topk(count)
            values = (best.values - normaliser).tolist()
            top = tuple(zip(best.indices.tolist(), values, strict=True))
        return TokenLogprob(token, float(logits[token] - normaliser), top)


def draw_tokens(logits: torch.Tensor, draws: Sequence[Draw]) -> torch.Tensor:
    """Draw a token from each row of float32 logits, as `RequestSampler.choose` does for one.

    The host does not wait for the device.
    """

    def column(values: Sequence[float]) -> torch.Tensor:
        host = torch.tensor(values, dtype=torch.float64)
        return host.to(logits.device, non_blocking=True)[:, None]

    logits = logits / column([draw.temperature for draw in draws]).float()
    if any(draw.min_p > 0 for draw in draws):
        # The logarithm of 0 is minus infinity, which is below every logit.
        limit = logits.amax(dim=-1, keepdim=True) + column([draw.min_p for draw in draws]).float().log()
        logits = logits.masked_fill(logits < limit, -torch.inf)
    vocabulary = logits.shape[-1]
    has_top_k = any(0 < draw.top_k < vocabulary for draw in draws)
    has_top_p = any(draw.top_p < 1.0 for draw in draws)
    if has_top_k or has_top_p:
        ordered = logits.sort(dim=-1, descending=True).values
        if has_top_k:
            counts = [draw.top_k if 0 < draw.top_k < vocabulary else vocabulary for draw in draws]
            limit = ordered.gather(-1, column(counts).long() - 1)
            logits, ordered = (each.masked_fill(each < limit, -torch.inf) for each in (logits, ordered))
        if has_top_p:
            # The last token that is needed for the sum: as many stay as there are sums below `top_p`, and one.
            sums = torch.softmax(ordered, dim=-1).cumsum(dim=-1)
            top_p = column([draw.top_p if draw.top_p < 1.0 else torch.inf for draw in draws])
            inside = (sums < top_p).sum(dim=-1, keepdim=True).clamp(max=vocabulary - 1)
            logits = logits.masked_fill(logits < ordered.gather(-1, inside), -torch.inf)
    cumulative = torch.softmax(logits, dim=-1, dtype=torch.float64).cumsum(dim=-1)
    targets = column([draw.uniform for draw in draws]) * cumulative[:, -1:]
    # Rounding may leave the last sum below 1.
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp(max=vocabulary - 1)


def _nucleus_limit(logits: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the lowest logit of the most probable tokens whose probabilities sum to `top_p`."""
    normaliser = logits.logsumexp(dim=-1)
    for count in (min(_CANDIDATES, logits.shape[0]), logits.shape[0]):
        best = logits.topk(count).values
        before = (best - normaliser).exp().cumsum(dim=-1)
        if before[-1] >= top_p or count == logits.shape[0]:
            break
    inside = int((before < top_p).sum())  # the next one reaches the sum
    return best[min(inside, count - 1)]


def _draw(logits: torch.Tensor, uniform: float) -> int:
    """Draw a token by inverting the cumulative distribution."""
    cumulative = torch.softmax(logits, dim=-1, dtype=torch.float64).cumsum(dim=-1)
    # Rounding may leave the last sum below 1; a token of probability 0 is never drawn.
    target = uniform * cumulative[-1]
    return int(torch.searchsorted(cumulative, target, right=True).clamp(max=logits.shape[0] - 1))


def _uniform(seed: int, index: int) -> float:
    """Return the random number of a token: the same for the same seed and position."""
    digest = hashlib.blake2b(struct.pack("<Qq", seed % 2**64, index), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53
