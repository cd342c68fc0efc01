"""Runs steps on a GPU, one ahead of the results that the host has read."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from skate.llm._engine.adapters import AdaptedRows
from skate.llm._engine.attention import Attention, KVCache
from skate.llm._engine.decoder import Decoder
from skate.llm._engine.gpu_attention import GpuAttention, QueryBatch, queries_per_block
from skate.llm._engine.model_config import ModelConfig
from skate.llm._engine.runner import RowRequest, SampledTokens, adapted_rows, mean_vector
from skate.llm._engine.sampler import RequestSampler, draw_tokens
from skate.llm._engine.scheduler import ScheduledSequence, SequenceState, Step
from skate.llm._engine.scheduler import Sequence as TokenSequence
from skate.llm._engine.step_graphs import StepGraphs
from skate.llm._engine.step_inputs import InputRow, Numbers, StepInputs, StepShape, StepShapes, fill_inputs

MakeAttention = Callable[[ModelConfig, KVCache, QueryBatch], Attention]
MakeGraphs = Callable[[Callable[[Any, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]], StepGraphs[Any]]
_UNKNOWN = -1  # stands for a token that only the device knows yet
_PROGRAMS = (
    264  # of the attention kernel, that a decode step should have: two for each multiprocessor of a large GPU
)


@dataclass(slots=True)
class _Row:
    """A sequence's row in the tensors that stay on the device.

    Args:
        epoch: The epoch of the sequence that the table of blocks belongs to.
        blocks: The number of valid blocks in the table.
    """

    index: int
    epoch: int = -1
    blocks: int = 0


class GpuRunner:
    """Computes steps on a GPU.

    Tokens stay on the device, where a step reads those that the previous step has chosen. So a step can be launched
    before the host knows its tokens. Steps of up to 1,024 tokens replay CUDA graphs, unless they use adapters.

    Args:
        decoder: The model on the device.
        cache: Its KV cache, with one block more than the scheduler hands out, which padding writes to.
        max_sequences: The maximum number of sequences in a step.
        max_blocks: The maximum number of blocks of a sequence.
        make_graphs: Creates the object that replays a function; None disables graphs.
        make_attention: Creates the attention of a step.
    """

    depth = 2

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        *,
        max_sequences: int,
        max_blocks: int,
        make_graphs: MakeGraphs | None,
        make_attention: MakeAttention = GpuAttention,
    ) -> None:
        device = decoder.device
        self._decoder = decoder
        self._cache = cache
        self._device = device
        self._make_attention = make_attention
        self._spare_block = cache.blocks - 1
        self._spare_row = max_sequences
        self._tables = torch.full(
            (max_sequences + 1, max_blocks), self._spare_block, dtype=torch.int32, device=device
        )
        self._last_tokens = torch.zeros(max_sequences + 1, dtype=torch.int64, device=device)
        self._rows: dict[TokenSequence, _Row] = {}
        self._free_rows = list(range(max_sequences))
        self._queries = queries_per_block(decoder.config)
        self._shapes = StepShapes(max_sequences, self._queries)
        self._decode_sizes = [size for size in _decode_sizes(max_sequences) if size < max_sequences]
        self._decode_sizes.append(max_sequences)
        self._decode_graphs = make_graphs(self._decode) if make_graphs else None
        self._mixed_graphs = make_graphs(self._mixed) if make_graphs else None
        self._unprepared: deque[int | StepShape] = deque()  # shapes of decode steps and of mixed ones
        if make_graphs:
            self._unprepared += (*self._decode_sizes, *self._shapes.all())
        # Graphs of mixed steps share one output, since each would otherwise keep scores of the whole vocabulary.
        self._scores: torch.Tensor | None = None

    @torch.inference_mode()
    def launch(self, step: Step, requests: Sequence[RowRequest]) -> LaunchedGpuStep:
        """Start to compute a step."""
        rows = [self._row(each.sequence) for each in step.rows]
        has_adapters = any(request.adapter is not None for request in requests)
        sampling = [index for index, row in enumerate(step.rows) if row.samples]
        if not has_adapters and all(map(self._is_ready, step.rows, rows)):
            scores, tokens = self._launch_decode(step, rows)
            columns = sampling  # of `tokens`, which has one for each row
        else:
            scores, tokens = self._launch_mixed(step, rows, requests)
            columns = list(range(len(sampling)))
        drawing: dict[int, int] = {}
        on_host: list[_HostRow] = []
        for number, (index, column) in enumerate(zip(sampling, columns, strict=True)):
            sampler = requests[index].sampler
            if sampler.needs_host:
                on_host.append(_HostRow(number, column, sampler, step.rows[index].output_position))
            elif not sampler.is_plain_greedy:
                drawing[index] = column
        if drawing:
            self._draw(drawing, step, requests, rows, scores, tokens)
        logits = None
        if on_host:
            wanted = self._upload([row.column for row in on_host]).long()
            logits = self._download(self._decoder.logits_of_scores(scores[wanted]))
        return LaunchedGpuStep(self._download(tokens), columns, on_host, logits, self._mark())

    @torch.inference_mode()
    def prepare(self) -> bool:
        """Record a graph that may be needed. Return False if none is left to record."""
        if not self._unprepared:
            return False
        assert self._decode_graphs is not None
        assert self._mixed_graphs is not None
        shape = self._unprepared.popleft()
        if isinstance(shape, StepShape):
            self._mixed_graphs.prepare(shape, self._fill(shape, []))
        else:
            self._decode_graphs.prepare(shape, self._decode_inputs(shape, []))
        return True

    @torch.inference_mode()
    def embed(self, prompt: Sequence[int]) -> list[float]:
        """Return the mean of the last hidden states of a prompt, scaled to length 1."""
        config, size, count = self._decoder.config, self._cache.block_size, len(prompt)
        blocks = -(-count // size)
        cache = KVCache(config, blocks, size, self._decoder.dtype, self._device)
        queries = queries_per_block(config)
        block_starts = torch.arange(0, count, queries, dtype=torch.int32, device=self._device)
        batch = QueryBatch(
            tables=torch.arange(blocks, dtype=torch.int32, device=self._device)[None],
            rows=self._upload([0]),
            starts=self._upload([0, count]),
            lengths=self._upload([count]),
            slots=torch.arange(count, dtype=torch.int32, device=self._device),
            block_sequences=torch.zeros_like(block_starts),
            block_starts=block_starts,
            queries=queries,
        )
        positions = torch.arange(count, device=self._device)
        attention = self._make_attention(config, cache, batch)
        return mean_vector(self._decoder.forward(self._upload(list(prompt)), positions, attention))

    def _row(self, sequence: TokenSequence) -> _Row:
        """Return the row of a sequence, which may be that of a sequence that no longer runs."""
        row = self._rows.get(sequence)
        if row is None:
            if not self._free_rows:
                for other in [each for each in self._rows if each.state is not SequenceState.RUNNING]:
                    self._free_rows.append(self._rows.pop(other).index)
            row = self._rows[sequence] = _Row(self._free_rows.pop())
        return row

    def _is_ready(self, scheduled: ScheduledSequence, row: _Row) -> bool:
        """Whether a sequence computes one token, and the device has all of its blocks, except perhaps the last."""
        return (
            scheduled.count == 1
            and row.epoch == scheduled.epoch
            and row.blocks >= scheduled.start // self._cache.block_size
        )

    def _launch_decode(self, step: Step, rows: Sequence[_Row]) -> tuple[torch.Tensor, torch.Tensor]:
        size = self._cache.block_size
        columns = []
        for scheduled, row in zip(step.rows, rows, strict=True):
            sequence, position = scheduled.sequence, scheduled.start
            block = position // size
            token = sequence.tokens[position] if position < len(sequence.tokens) else _UNKNOWN
            columns.append((row.index, token, position, sequence.blocks[block]))
            row.blocks = block + 1
        count = len(columns)
        if self._decode_graphs is None:
            return self._decode(count, self._upload(self._decode_inputs(count, columns)))
        size = self._decode_sizes[bisect.bisect_left(self._decode_sizes, count)]
        return self._decode_graphs.run(size, self._decode_inputs(size, columns))

    def _decode_inputs(self, size: int, columns: Sequence[tuple[int, int, int, int]]) -> Numbers:
        padding = (self._spare_row, 0, 0, self._spare_block)
        padded = np.array([*columns, *[padding] * (size - len(columns))], dtype=np.int32)
        return np.ascontiguousarray(padded.T)

    def _decode(self, count: int, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute one token of each sequence; return the scores and the best token of each.

        Args:
            count: The number of sequences.
            inputs: Rows in the tables, tokens, positions, and the blocks of the positions.
        """
        rows, tokens, positions, blocks = inputs.unbind()
        size = self._cache.block_size
        indices = rows.long()
        tokens = torch.where(tokens < 0, self._last_tokens[indices], tokens)
        self._tables[indices, (positions // size).long()] = blocks
        numbers = torch.arange(count + 1, dtype=torch.int32, device=self._device)
        batch = QueryBatch(
            tables=self._tables,
            rows=rows,
            starts=numbers,
            lengths=positions + 1,
            slots=blocks * size + positions % size,
            block_sequences=numbers[:count],
            block_starts=torch.zeros(count, dtype=torch.int32, device=self._device),
            queries=1,
            splits=_splits(count * self._decoder.config.num_kv_heads),
        )
        attention = self._make_attention(self._decoder.config, self._cache, batch)
        return self._choose_best(self._decoder.forward(tokens, positions, attention), indices)

    def _launch_mixed(
        self, step: Step, rows: Sequence[_Row], requests: Sequence[RowRequest]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute any number of tokens of each sequence; return scores and tokens of the rows that sample."""
        self._send_tables(step, rows)
        input_rows = [_input_row(scheduled, row) for scheduled, row in zip(step.rows, rows, strict=True)]
        adapted = adapted_rows(step, [request.adapter for request in requests], self._device)
        padded = None if adapted else self._shapes.padded(input_rows)
        shape = self._shapes.exact(input_rows) if padded is None or self._mixed_graphs is None else padded
        inputs = self._fill(shape, input_rows)
        if self._mixed_graphs is None or shape is not padded:
            return self._compute(shape, self._upload(inputs), adapted)
        return self._mixed_graphs.run(shape, inputs)

    def _fill(self, shape: StepShape, rows: Sequence[InputRow]) -> Numbers:
        return fill_inputs(
            shape,
            rows,
            block_size=self._cache.block_size,
            queries=self._queries,
            spare_row=self._spare_row,
            spare_slot=self._spare_block * self._cache.block_size,
        )

    def _mixed(self, shape: StepShape, array: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute a step whose outputs are replaced by those of the next."""
        scores, tokens = self._compute(shape, array)
        if self._scores is None:
            self._scores = scores.new_empty(self._spare_row + 1, scores.shape[1])
        return self._scores[: shape.sequences].copy_(scores), tokens

    def _compute(
        self, shape: StepShape, array: torch.Tensor, adapted: Sequence[AdaptedRows] = ()
    ) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = StepInputs.of(shape, array)
        last_tokens = self._last_tokens[inputs.token_rows.long()]
        batch = QueryBatch(
            tables=self._tables,
            rows=inputs.rows,
            starts=inputs.starts,
            lengths=inputs.lengths,
            slots=inputs.slots,
            block_sequences=inputs.block_sequences,
            block_starts=inputs.block_starts,
            queries=self._queries,
        )
        hidden = self._decoder.forward(
            torch.where(inputs.tokens < 0, last_tokens, inputs.tokens),
            inputs.positions,
            self._make_attention(self._decoder.config, self._cache, batch),
            adapted,
        )
        return self._choose_best(hidden[inputs.last.long()], inputs.sampling_rows.long())

    def _choose_best(self, hidden: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self._decoder.head(hidden)
        tokens = scores.argmax(dim=-1)
        self._last_tokens[rows] = tokens
        return scores, tokens

    def _send_tables(self, step: Step, rows: Sequence[_Row]) -> None:
        """Send the tables of sequences that have started, or have more than one new block."""
        stale: list[tuple[int, list[int]]] = []
        for scheduled, row in zip(step.rows, rows, strict=True):
            blocks = scheduled.sequence.blocks
            if row.epoch != scheduled.epoch or row.blocks < len(blocks):
                stale.append((row.index, blocks))
                row.epoch, row.blocks = scheduled.epoch, len(blocks)
        if stale:
            width = max(len(blocks) for _, blocks in stale)
            values = np.full((len(stale), width + 1), self._spare_block, dtype=np.int32)
            for line, (index, blocks) in zip(values, stale, strict=True):
                line[0] = index
                line[1 : len(blocks) + 1] = blocks
            sent = self._upload(values)
            self._tables[sent[:, 0].long(), :width] = sent[:, 1:]

    def _draw(
        self,
        drawing: Mapping[int, int],
        step: Step,
        requests: Sequence[RowRequest],
        rows: Sequence[_Row],
        scores: torch.Tensor,
        tokens: torch.Tensor,
    ) -> None:
        """Replace the best token by a random one for some rows, whose columns of `scores` and `tokens` are given."""
        columns = self._upload(list(drawing.values())).long()
        draws = [requests[index].sampler.draw(step.rows[index].output_position) for index in drawing]
        chosen = draw_tokens(self._decoder.logits_of_scores(scores[columns]), draws)
        tokens[columns] = chosen
        self._last_tokens[self._upload([rows[index].index for index in drawing]).long()] = chosen

    def _mark(self) -> torch.cuda.Event | None:
        """Return an event that occurs when everything launched so far has ended."""
        if self._device.type == "cpu":
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _upload(self, values: Sequence[int] | np.ndarray[Any, Any]) -> torch.Tensor:
        """Send int32 numbers to the device without waiting for it."""
        host = torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32))
        if self._device.type == "cpu":
            return host.clone()
        return host.pin_memory().to(self._device, non_blocking=True)

    def _download(self, values: torch.Tensor) -> torch.Tensor:
        """Start to copy a tensor to the host. The copy is complete when the step has ended."""
        if self._device.type == "cpu":
            return values.clone()
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        return host.copy_(values, non_blocking=True)


@dataclass(frozen=True, slots=True)
class _HostRow:
    """A row whose token the host chooses.

    Args:
        number: The index of the token among those of the step.
        column: The index of its logits among those of the device.
        position: The number of tokens that the request has generated before.
    """

    number: int
    column: int
    sampler: RequestSampler
    position: int


@dataclass(frozen=True, slots=True)
class LaunchedGpuStep:
    """A step on the device, whose results are being copied to the host."""

    tokens: torch.Tensor
    columns: Sequence[int]
    on_host: Sequence[_HostRow]
    logits: torch.Tensor | None
    end: torch.cuda.Event | None

    def wait(self) -> SampledTokens:
        """Wait for the results."""
        if self.end is not None:
            self.end.synchronize()
        tokens = self.tokens.tolist()
        sampled = SampledTokens([tokens[column] for column in self.columns])
        if self.logits is not None:
            for row, logits in zip(self.on_host, self.logits, strict=True):
                sampled.choose(row.number, row.sampler, logits, row.position)
        return sampled


def _splits(programs: int) -> int:
    """Return into how many programs to split the work of one, so that the device is busy."""
    return next((splits for splits in (1, 4) if programs * splits * 2 > _PROGRAMS), 16)


def _decode_sizes(largest: int) -> list[int]:
    """Return the numbers of sequences that decode steps are padded to."""
    return [1, 2, 4, *range(8, 64, 8), *range(64, 256, 16), *range(256, largest, 64)]


def _input_row(scheduled: ScheduledSequence, row: _Row) -> InputRow:
    sequence, end = scheduled.sequence, scheduled.start + scheduled.count
    tokens = sequence.tokens[scheduled.start : end]
    if len(tokens) < scheduled.count:
        tokens = [*tokens, _UNKNOWN]
    return InputRow(row.index, tokens, scheduled.start, sequence.blocks, scheduled.samples)
