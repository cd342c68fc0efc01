"""Runs the steps that the scheduler plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch.nn import functional

from skate.llm._engine.adapters import AdaptedRows, Adapter
from skate.llm._engine.api import TokenLogprob
from skate.llm._engine.attention import AttentionRow, KVCache, PagedAttention
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.sampler import RequestSampler
from skate.llm._engine.scheduler import Step


class RowRequest(Protocol):
    """The properties of a row's request that a runner needs."""

    @property
    def sampler(self) -> RequestSampler:
        """Chooses the request's tokens."""
        ...

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that the request uses."""
        ...


@dataclass(slots=True)
class SampledTokens:
    """The results of a step.

    Args:
        tokens: A token for each row that samples, in their order.
        logprobs: The log-probabilities of requests that ask for them, by the index of the token.
        failures: Why no token could be chosen for a request, by the index of the token, which has no meaning then.
    """

    tokens: list[int]
    logprobs: dict[int, TokenLogprob] = field(default_factory=dict)
    failures: dict[int, Exception] = field(default_factory=dict)

    def choose(self, index: int, sampler: RequestSampler, logits: torch.Tensor, position: int) -> None:
        """Choose a token from logits on the CPU.

        Args:
            index: The index of the token.
            sampler: Of the row's request.
            logits: Of one dimension.
            position: The number of tokens that the request has generated before.
        """
        try:
            self.tokens[index], logprob = sampler.choose(logits, position)
        except ValueError as error:  # the request's grammar allows no further token
            self.failures[index] = error
            return
        if logprob is not None:
            self.logprobs[index] = logprob


class LaunchedStep(Protocol):
    """A step that a device computes."""

    def wait(self) -> SampledTokens:
        """Wait for the results."""
        ...


class Runner(Protocol):
    """Computes steps on a device."""

    depth: int
    """How many steps may be in flight at a time."""

    def launch(self, step: Step, requests: Sequence[RowRequest]) -> LaunchedStep:
        """Start to compute a step.

        Args:
            step: What to compute.
            requests: What belongs to each row.
        """
        ...

    def prepare(self) -> bool:
        """Do a part of the preparation that makes later steps faster. Return False if nothing is left to do."""
        ...

    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Return the mean of the last hidden states of a prompt, scaled to length 1."""
        ...


class CpuRunner:
    """Computes one step at a time, on a CPU."""

    depth = 1

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self._decoder = decoder
        self._cache = cache

    def launch(self, step: Step, requests: Sequence[RowRequest]) -> LaunchedStep:
        """Compute a step."""
        logits = self.logits(step, [request.adapter for request in requests])
        # NumPy's argmax is vectorised, and torch's is not.
        sampled = SampledTokens(logits.numpy().argmax(axis=-1).tolist())
        sampling = (pair for pair in zip(step.rows, requests, strict=True) if pair[0].samples)
        for index, (row, request) in enumerate(sampling):
            if not request.sampler.is_plain_greedy:
                sampled.choose(index, request.sampler, logits[index], row.output_position)
        return _Finished(sampled)

    def prepare(self) -> bool:
        """Return False: a CPU needs no preparation."""
        return False

    @torch.inference_mode()
    def logits(self, step: Step, adapters: Sequence[Adapter | None] = ()) -> torch.Tensor:
        """Compute a step, and return the logits of the rows that sample, in their order."""
        tokens: list[int] = []
        positions: list[int] = []
        rows = []
        last = []
        for row in step.rows:
            end = row.start + row.count
            tokens += row.sequence.tokens[row.start : end]
            positions += range(row.start, end)
            rows.append(AttentionRow(row.start, row.count, row.sequence.blocks))
            if row.samples:
                last.append(len(tokens) - 1)
        hidden = self._decoder.forward(
            torch.tensor(tokens),
            torch.tensor(positions),
            PagedAttention(self._decoder.config, self._cache, rows),
            adapted_rows(step, adapters),
        )
        if not last:  # parts of prompts only: kernels for weights of 4 bits do not take zero rows
            return torch.empty(0, self._decoder.config.vocab_size)
        return self._decoder.logits(hidden[torch.tensor(last, dtype=torch.int64)])

    @torch.inference_mode()
    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Return the mean of the last hidden states of a prompt, scaled to length 1."""
        config, size = self._decoder.config, self._cache.block_size
        blocks = -(-len(prompt) // size)
        cache = KVCache(config, blocks, size, self._decoder.dtype, self._decoder.device)
        attention = PagedAttention(config, cache, [AttentionRow(0, len(prompt), range(blocks))])
        return mean_vector(self._decoder.forward(torch.tensor(prompt), torch.arange(len(prompt)), attention))


@dataclass(frozen=True, slots=True)
class _Finished:
    """A step whose results are known."""

    sampled: SampledTokens

    def wait(self) -> SampledTokens:
        return self.sampled


def mean_vector(hidden: torch.Tensor) -> list[float]:
    """Return the mean of hidden states, scaled to length 1."""
    vector: list[float] = functional.normalize(hidden.float().mean(dim=0), dim=0).tolist()
    return vector


def adapted_rows(
    step: Step, adapters: Sequence[Adapter | None], device: torch.device | None = None
) -> list[AdaptedRows]:
    """Return the tokens of each adapter that the step uses."""
    rows: dict[Adapter, list[int]] = {}
    first = 0
    for row, adapter in zip(step.rows, adapters, strict=False):
        if adapter is not None:
            rows.setdefault(adapter, []).extend(range(first, first + row.count))
        first += row.count
    return [AdaptedRows(adapter, torch.tensor(each, device=device)) for adapter, each in rows.items()]
