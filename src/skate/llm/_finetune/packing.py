"""Which rows are in which step, the tensors of a micro-batch, and whether packed rows see each other.

Everything is a function of the seed and the step, so a resumed run needs only the number of its next step. The rows of
a step do not depend on how its sequences are divided among workers and micro-batches.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skate.llm._finetune.store import Prepared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINDOW = 4096  # rows that are packed together: more fill sequences better, fewer keep the order more random

# The largest difference that rounding explains; a leak changes the loss of a row by much more.
LARGEST_DIFFERENCE = {"float32": 1e-4, "bfloat16": 3e-2}
_PROBE_TOKENS = 16  # of each of the two rows with which a leak is measured

Bin = tuple[int, ...]  # the rows of one sequence


def pack(rows: Sequence[int], lengths: Sequence[int], capacity: int) -> list[Bin]:
    """Pack rows into sequences of at most `capacity` tokens. The longest row is placed first, where it fits best.

    >>> pack([0, 1, 2, 3], lengths=[6, 5, 3, 2], capacity=8)
    [(0, 3), (1, 2)]
    """
    bins: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (free tokens, number of the bin), sorted
    for row in sorted(rows, key=lambda each: (-lengths[each], each)):
        at = bisect.bisect_left(free, (lengths[row], -1))
        if at < len(free):
            left, number = free.pop(at)
            bins[number].append(row)
        else:
            left, number = capacity, len(bins)
            bins.append([row])
        bisect.insort(free, (left - lengths[row], number))
    return [tuple(each) for each in bins]


def pack_in_windows(
    rows: Sequence[int], lengths: Sequence[int], capacity: int, *, window: int = WINDOW
) -> list[Bin]:
    """Pack rows into sequences, one window of consecutive rows at a time."""
    return [
        each
        for start in range(0, len(rows), window)
        for each in pack(rows[start : start + window], lengths, capacity)
    ]


@dataclass(frozen=True)
class Micro:
    """The sequences of one worker's micro-batch. It may be empty in the last step."""

    bins: tuple[Bin, ...]


class Plan:
    """The steps of a run.

    Args:
        prepared: The rows.
        capacity: The maximum number of tokens of a sequence.
        packed: Whether a sequence has several rows.
        micro_batch_size: The number of sequences in a micro-batch.
        accumulation: The number of micro-batches of a worker in a step.
        workers: The number of workers.
        epochs: The number of passes over the rows. The last may be partial.
        max_steps: The maximum number of steps.
        seed: The seed of the order of rows.
    """

    def __init__(
        self,
        prepared: Prepared,
        *,
        capacity: int,
        packed: bool,
        micro_batch_size: int,
        accumulation: int,
        workers: int,
        epochs: float,
        max_steps: int | None,
        seed: int,
    ) -> None:
        self._prepared = prepared
        self._lengths = row_lengths(prepared)
        self._trained = prepared.trained()
        self._capacity = capacity
        self._packed = packed
        self._micro = micro_batch_size
        self._workers = workers
        self._batch = micro_batch_size * accumulation * workers
        self._seed = seed
        self._bins: dict[int, list[Bin]] = {}
        # The number of sequences differs between epochs, because different rows are packed together.
        self._first_steps = [0]
        whole = math.ceil(epochs)
        for epoch in range(whole):
            steps = self.steps_of_epoch(epoch)
            if epoch == whole - 1 and epochs < whole:
                steps = max(1, round(steps * (epochs - epoch)))
            self._first_steps.append(self._first_steps[-1] + steps)
            if max_steps is not None and self._first_steps[-1] >= max_steps:
                self._first_steps[-1] = max_steps
                break

    @property
    def steps(self) -> int:
        """The number of steps of the run."""
        return self._first_steps[-1]

    @property
    def first_epoch_steps(self) -> int:
        """The number of steps of the first epoch, if it is complete."""
        return self.steps_of_epoch(0)

    def steps_of_epoch(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return math.ceil(len(self.bins(epoch)) / self._batch)

    def epoch_of(self, step: int) -> int:
        """Return the epoch that a step belongs to."""
        return bisect.bisect_right(self._first_steps, step) - 1

    def progress(self, steps: int) -> float:
        """Return the number of epochs that are complete after a number of steps."""
        if steps == 0:
            return 0.0
        epoch = self.epoch_of(steps - 1)
        return epoch + (steps - self._first_steps[epoch]) / self.steps_of_epoch(epoch)

    def bins(self, epoch: int) -> list[Bin]:
        """Return the sequences of an epoch, in their order."""
        import numpy as np

        if epoch not in self._bins:
            rng = np.random.default_rng([self._seed, epoch])
            rows = [int(each) for each in rng.permutation(self._prepared.train)]
            if self._packed:
                made = pack_in_windows(rows, self._lengths, self._capacity)
                made = [made[int(i)] for i in rng.permutation(len(made))]
            else:
                made = [(row,) for row in rows]
            while len(self._bins) > 1:  # keep the two latest epochs
                self._bins.pop(next(iter(self._bins)))
            self._bins[epoch] = made
        return self._bins[epoch]

    def step_bins(self, step: int) -> list[Bin]:
        """Return the sequences of a step, for all workers."""
        epoch = self.epoch_of(step)
        start = (step - self._first_steps[epoch]) * self._batch
        return self.bins(epoch)[start : start + self._batch]

    def micros(self, step: int, rank: int) -> list[Micro]:
        """Return the micro-batches of a worker in a step. Every worker has the same number."""
        return divide(self.step_bins(step), self._micro, self._workers)[rank]

    def trained_tokens(self, step: int) -> int:
        """Return the number of tokens that all workers train in a step."""
        per_row = self._prepared.sequences_per_row
        return sum(
            int(self._trained[row * per_row + i])
            for each in self.step_bins(step)
            for row in each
            for i in range(per_row)
        )

    def worst(self) -> Micro:
        """Return the micro-batch that needs the most memory: the longest sequences of the first epoch."""
        sizes = sorted(
            self.bins(0), key=lambda bin_: (-sum(self._lengths[row] for row in bin_), -len(bin_), bin_)
        )
        return Micro(tuple(sizes[: self._micro]))


def row_lengths(prepared: Prepared) -> list[int]:
    """Return the number of tokens of each row. For a pair, it is the length of the longer sequence."""
    lengths = prepared.lengths().reshape(-1, prepared.sequences_per_row)
    return [int(each) for each in lengths.max(axis=1)]


def divide(bins: Sequence[Bin], size: int, workers: int) -> list[list[Micro]]:
    """Divide sequences into the micro-batches of each worker.

    >>> [[each.bins for each in part] for part in divide([(0,), (1,), (2,)], size=1, workers=2)]
    [[((0,),), ((2,),)], [((1,),), ()]]
    """
    parts = [bins[rank::workers] for rank in range(workers)]
    number = max(1, math.ceil(len(parts[0]) / size))
    return [[Micro(tuple(part[i * size : (i + 1) * size])) for i in range(number)] for part in parts]


def collate(prepared: Prepared, micro: Micro, *, flat: bool = False) -> dict[str, Any]:
    """Return the tensors of a micro-batch.

    Positions restart with each row, and transformers lets no token attend across a restart. The label of a token is the
    next token of the same row if that is trained, and -100 otherwise. Padding is at the end of a sequence, where
    nothing attends to it.

    Args:
        prepared: The rows.
        micro: The sequences of rows.
        flat: Put all rows into one sequence without padding, for variable-length attention.
    """
    import numpy as np
    import torch

    per_row = prepared.sequences_per_row
    lines = [
        [prepared.sequence(row * per_row + i) for row in bin_] for i in range(per_row) for bin_ in micro.bins
    ]
    if not lines:  # the step has no rows for this worker, which takes part without trained tokens
        ids, _ = prepared.sequence(0)
        lines = [[(ids[:2], np.zeros(len(ids[:2]), np.bool_))]] * per_row
    if flat:
        lines = [[piece for line in lines for piece in line]]
    width = max(sum(len(ids) for ids, _ in line) for line in lines)
    shape = len(lines), width
    ids, positions = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    labels = np.full(shape, -100, np.int64)
    for number, line in enumerate(lines):
        at = 0
        for tokens, mask in line:
            end = at + len(tokens)
            ids[number, at:end] = tokens
            positions[number, at:end] = np.arange(len(tokens))
            labels[number, at : end - 1] = np.where(mask[1:], tokens[1:], -100)
            at = end
        last = positions[number, at - 1]
        positions[number, at:] = np.arange(last + 1, last + 1 + width - at)
    return {
        "input_ids": torch.from_numpy(ids),
        "position_ids": torch.from_numpy(positions),
        "labels": torch.from_numpy(labels),
    }


def fill(bins: Sequence[Bin], lengths: Sequence[int], capacity: int) -> float:
    """Return the fraction of the sequences that is filled with tokens."""
    return sum(lengths[row] for each in bins for row in each) / (capacity * len(bins))


def evaluation_bins(prepared: Prepared, capacity: int, *, packed: bool) -> list[Bin]:
    """Return the sequences to evaluate on."""
    rows: NDArray[np.int64] = prepared.evaluation
    numbers = [int(each) for each in rows]
    if packed:
        return pack_in_windows(numbers, row_lengths(prepared), capacity)
    return [(each,) for each in numbers]


def packed_difference(module: Any, device: Any) -> float:
    """Return by how much the mean loss of a row changes when another row is packed before it.

    Args:
        module: A `LanguageModelLoss`.
        device: Its device.
    """
    import torch

    vocabulary = module.model.get_input_embeddings().weight.shape[0]
    random = torch.Generator().manual_seed(0)
    first, second = torch.randint(vocabulary, (2, _PROBE_TOKENS), generator=random)
    was_training = module.training
    module.eval()
    with torch.no_grad():
        alone, packed = (
            float(module(**{name: each.to(device) for name, each in batch.items()})) / (_PROBE_TOKENS - 1)
            for batch in (_probe_batch(second), _probe_batch(second, after=first))
        )
    module.train(was_training)
    return abs(alone - packed)


def _probe_batch(row: Any, after: Any = None) -> dict[str, Any]:
    """Return a micro-batch with one row, optionally packed after another row, which is not trained."""
    import torch

    ids, positions = row, torch.arange(len(row))
    labels = torch.cat([row[1:], torch.tensor([-100])])
    if after is not None:
        ids = torch.cat([after, ids])
        positions = torch.cat([torch.arange(len(after)), positions])
        labels = torch.cat([torch.full((len(after),), -100), labels])
    return {"input_ids": ids[None], "position_ids": positions[None], "labels": labels[None]}
