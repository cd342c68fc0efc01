"""The inputs of a step on a GPU: several rows of numbers in one array, which one copy sends to the device."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import torch

Numbers = np.ndarray[Any, np.dtype[np.int32]]
Array = TypeVar("Array", Numbers, torch.Tensor)
_ALIGNED = 4  # numbers that take 16 bytes: Triton compiles a kernel again for tensors that are not aligned


@dataclass(frozen=True)
class StepShape:
    """The sizes of a step's inputs.

    Args:
        tokens: Tokens to compute.
        sequences: Sequences that they belong to.
        blocks: Blocks of queries, in which a kernel computes attention.
    """

    tokens: int
    sequences: int
    blocks: int

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """The positions of the fields of `StepInputs` in an array."""
        of_tokens, of_sequences, of_blocks = (self.tokens,) * 4, (self.sequences,) * 4, (self.blocks,) * 2
        start, slices = 0, []
        for length in (*of_tokens, self.sequences + 1, *of_sequences, *of_blocks):
            slices.append(slice(start, start + length))
            start += -(-length // _ALIGNED) * _ALIGNED
        return tuple(slices)

    @property
    def size(self) -> int:
        """The length of the array."""
        end: int = self.slices[-1].stop
        return end


@dataclass(frozen=True, slots=True)
class StepInputs(Generic[Array]):
    """The inputs of a step, stored in one array. Sequences are numbered in the order of the step.

    Args:
        tokens: The tokens; a negative one is the token that the row of its sequence has chosen last.
        positions: The position of each token in its sequence.
        slots: Where its key and value go.
        token_rows: The row of its sequence in the tensors that stay on the device.
        starts: The index of the first token of each sequence, and, last, the number of tokens.
        lengths: The number of tokens of each sequence, new ones included.
        rows: The row of each sequence.
        last: The index of the last token of each sequence that samples.
        sampling_rows: The row of each sequence that samples.
        block_sequences: The sequence of each block of queries.
        block_starts: The number of new tokens of that sequence before the block.
    """

    tokens: Array
    positions: Array
    slots: Array
    token_rows: Array
    starts: Array
    lengths: Array
    rows: Array
    last: Array
    sampling_rows: Array
    block_sequences: Array
    block_starts: Array

    @classmethod
    def of(cls, shape: StepShape, array: Array) -> StepInputs[Array]:
        """Return the parts of an array."""
        return cls(*(array[each] for each in shape.slices))


@dataclass(frozen=True, slots=True)
class InputRow:
    """What a step computes of one sequence.

    Args:
        row: The row of the sequence in the tensors that stay on the device.
        tokens: The tokens to compute.
        start: The position of the first.
        blocks: The blocks of the sequence.
        samples: Whether to sample the next token.
    """

    row: int
    tokens: Sequence[int]
    start: int
    blocks: Sequence[int]
    samples: bool


class StepShapes:
    """The few shapes that inputs of steps are padded to, so that a graph can be replayed for each.

    Larger steps have no shape: the device takes longer to compute them than the host to launch them.

    Args:
        max_sequences: The maximum number of sequences in a step.
        queries: Tokens in a block of queries.
    """

    _TOKENS = (16, *range(32, 256, 32), *range(256, 512, 64), *range(512, 1025, 128))
    _SEQUENCES = (32, 128)

    def __init__(self, max_sequences: int, queries: int) -> None:
        most = max_sequences + 1
        self._sequences = [*(each for each in self._SEQUENCES if each < most), most]
        self._queries = queries

    def all(self) -> Iterator[StepShape]:
        """Return all shapes, those of few sequences first."""
        for sequences in self._sequences:
            for tokens in self._TOKENS:
                yield self._shape(tokens, sequences)

    def exact(self, rows: Sequence[InputRow]) -> StepShape:
        """Return the shape of a step without padding."""
        blocks = sum(-(-len(row.tokens) // self._queries) for row in rows)
        return StepShape(sum(len(row.tokens) for row in rows), len(rows), blocks)

    def padded(self, rows: Sequence[InputRow]) -> StepShape | None:
        """Return the smallest shape that has room for a step and one more sequence, which has no tokens."""
        count = sum(len(row.tokens) for row in rows)
        if count > self._TOKENS[-1]:
            return None
        tokens = self._TOKENS[bisect.bisect_left(self._TOKENS, count)]
        sequences = self._sequences[bisect.bisect_right(self._sequences, len(rows))]
        return self._shape(tokens, sequences)

    def _shape(self, tokens: int, sequences: int) -> StepShape:
        return StepShape(tokens, sequences, -(-tokens // self._queries) + sequences)


def fill_inputs(
    shape: StepShape,
    rows: Sequence[InputRow],
    *,
    block_size: int,
    queries: int,
    spare_row: int,
    spare_slot: int,
) -> Numbers:
    """Return the inputs of a step.

    Padding computes tokens of no sequence, whose keys and values go to the spare slot; blocks of queries of a sequence
    without tokens; and samples for the spare row.

    Args:
        shape: The shape of the inputs.
        rows: What the step computes.
        block_size: Tokens in a block of the KV cache.
        queries: Tokens in a block of queries.
        spare_row: A row that belongs to no sequence.
        spare_slot: A slot of the KV cache that belongs to no sequence.
    """
    array = np.zeros(shape.size, dtype=np.int32)
    inputs = StepInputs.of(shape, array)
    inputs.slots[:] = spare_slot
    inputs.token_rows[:] = inputs.rows[:] = inputs.sampling_rows[:] = spare_row
    first = block = sampling = 0
    for number, row in enumerate(rows):
        count = len(row.tokens)
        end = first + count
        inputs.starts[number] = first
        inputs.lengths[number] = row.start + count
        inputs.rows[number] = row.row
        if count == 1:
            inputs.tokens[first] = row.tokens[0]
            inputs.positions[first] = row.start
            inputs.slots[first] = row.blocks[row.start // block_size] * block_size + row.start % block_size
            inputs.token_rows[first] = row.row
        else:
            positions = np.arange(row.start, row.start + count, dtype=np.int32)
            inputs.tokens[first:end] = row.tokens
            inputs.positions[first:end] = positions
            table = np.array(row.blocks, dtype=np.int32)
            inputs.slots[first:end] = table[positions // block_size] * block_size + positions % block_size
            inputs.token_rows[first:end] = row.row
        for block_start in range(0, count, queries):
            inputs.block_sequences[block] = number
            inputs.block_starts[block] = block_start
            block += 1
        if row.samples:
            inputs.last[sampling] = end - 1
            inputs.sampling_rows[sampling] = row.row
            sampling += 1
        first = end
    inputs.starts[len(rows) :] = first
    inputs.block_sequences[block:] = len(rows)
    return array
