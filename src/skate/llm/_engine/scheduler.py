"""Decide which tokens the next step computes, without I/O and tensors.

A step computes one token of each sequence that is generating and, with the rest of its budget, parts of prompts. A step
may be launched before the results of the previous one are known, so a sequence counts its tokens in flight, and
`commit` fills them in.
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from skate.llm._engine.blocks import BlockPool, block_hash


class SequenceState(enum.Enum):
    """The state of a sequence."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FINISHED = enum.auto()


class Sequence:
    """The tokens of one request, and the blocks that hold their keys and values.

    Args:
        prompt: The tokens to start from.
        max_tokens: The maximum number of tokens to generate.
        root: The first hash of its chain of block hashes. Sequences with different roots share no block.
        order: A priority and a sequence number. Sequences with a lower order start first and are preempted last.
        needs_last_token: Whether a token can be sampled only when the previous one is known, as with a grammar.
        first_token: The first sampled token, if another engine has computed the prompt. When the sequence starts, the
            keys and values of the prompt are imported instead of computed.
    """

    __slots__ = (
        "blocks",
        "cached_tokens",
        "computed",
        "epoch",
        "hashes",
        "importable",
        "in_flight",
        "max_tokens",
        "needs_last_token",
        "order",
        "preemptions",
        "prompt_length",
        "registered",
        "root",
        "state",
        "tokens",
    )

    def __init__(
        self,
        prompt: SequenceOf[int],
        *,
        max_tokens: int,
        root: bytes = b"",
        order: tuple[int, int] = (0, 0),
        needs_last_token: bool = False,
        first_token: int | None = None,
    ) -> None:
        self.tokens = list(prompt)
        self.prompt_length = len(self.tokens)
        self.importable = 0  # tokens of the prompt to import; 0 after that
        if first_token is not None:
            self.tokens.append(first_token)
            self.importable = self.prompt_length
        self.max_tokens = max_tokens
        self.root = root
        self.order = order
        self.needs_last_token = needs_last_token
        self.state = SequenceState.WAITING
        self.computed = 0  # tokens whose keys and values are in the cache when the launched steps have ended
        self.in_flight = 0  # tokens that launched steps will sample
        self.cached_tokens: int | None = None  # prompt tokens that were in the cache when it first started
        self.blocks: list[int] = []
        self.hashes: list[bytes] = []  # of the full blocks of known tokens
        self.registered = 0  # blocks that others can find
        self.epoch = 0  # raised by a preemption, which makes the blocks of launched steps stale
        self.preemptions = 0

    @property
    def generated(self) -> int:
        """The number of sampled tokens that are known."""
        return len(self.tokens) - self.prompt_length

    @property
    def length(self) -> int:
        """The number of tokens, including those in flight."""
        return len(self.tokens) + self.in_flight


@dataclass(slots=True)  # not frozen: one is made for each token, and freezing doubles the cost
class ScheduledSequence:
    """The part of a step that belongs to one sequence.

    Args:
        sequence: The sequence.
        start: The position of the first token to compute.
        count: The number of tokens to compute.
        samples: Whether to sample the next token.
        epoch: The epoch of the sequence when the step was planned.
    """

    sequence: Sequence
    start: int
    count: int
    samples: bool
    epoch: int

    @property
    def output_position(self) -> int:
        """The number of tokens that are generated before the one that the row samples."""
        return self.start + self.count - self.sequence.prompt_length


@dataclass(frozen=True, slots=True)
class Import:
    """Keys and values to write into the blocks of a sequence before a step is computed.

    Args:
        sequence: The sequence.
        start: The position of the first token.
        count: The number of tokens.
    """

    sequence: Sequence
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Step:
    """The work of one forward pass, and the imports that precede it."""

    rows: tuple[ScheduledSequence, ...]
    imports: tuple[Import, ...] = ()

    @property
    def tokens(self) -> int:
        """The number of tokens that the step computes."""
        return sum(row.count for row in self.rows)


class _Draft:
    """A step under construction: the number of tokens of each sequence, how many more fit, and the imports."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.counts: dict[Sequence, int] = {}
        self.imports: list[Import] = []

    def add(self, sequence: Sequence, count: int) -> None:
        self.counts[sequence] = count
        self.budget -= count

    def remove(self, sequence: Sequence) -> None:
        self.budget += self.counts.pop(sequence, 0)


class Scheduler:
    """Plans steps for the sequences that were added.

    Sequences start in their order. When no block is free, the last sequence releases its blocks and starts again later,
    so the first one always finishes.

    Args:
        pool: The blocks of the KV cache. There must be enough for one sequence of the maximum length.
        max_sequences: The maximum number of sequences that run concurrently.
        max_step_tokens: The maximum number of tokens that a step computes.
        prefix_caching: Whether prompts share the blocks of equal prefixes.
    """

    def __init__(
        self, pool: BlockPool, *, max_sequences: int, max_step_tokens: int, prefix_caching: bool = True
    ) -> None:
        if max_step_tokens < max_sequences:
            raise ValueError(
                f"max_step_tokens ({max_step_tokens}) must be at least max_sequences ({max_sequences}), so that "
                "every sequence can generate a token in each step"
            )
        self.pool = pool
        self.max_sequences = max_sequences
        self.max_step_tokens = max_step_tokens
        self.prefix_caching = prefix_caching
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        # Hashes of blocks that running sequences are computing. Sequences with the same prefix wait for them.
        self._computing: dict[bytes, Sequence] = {}

    def add(self, sequence: Sequence) -> None:
        """Add a sequence, which starts when its turn comes."""
        bisect.insort(self.waiting, sequence, key=_order)

    def finish(self, sequence: Sequence) -> None:
        """Remove a sequence and release its blocks. The results of launched steps are ignored."""
        if sequence.state is SequenceState.RUNNING:
            self._stop(sequence)
        elif sequence.state is SequenceState.WAITING:
            self.waiting.remove(sequence)
        sequence.state = SequenceState.FINISHED

    def plan(self) -> Step | None:
        """Return the next step, which counts as launched, or None if there is nothing to compute now."""
        planned = _Draft(self.max_step_tokens)
        preempted = False
        # Sequences that are generating come first, because clients are reading them; then prompts.
        prompts = []
        for sequence in list(self.running):
            if sequence.length - sequence.computed != 1:
                prompts.append(sequence)
            elif self._may_continue(sequence) and sequence.state is SequenceState.RUNNING and planned.budget:
                preempted |= self._reserve(sequence, 1, planned)
        for sequence in prompts:
            count = min(sequence.length - sequence.computed, planned.budget)
            if count > 0 and sequence.state is SequenceState.RUNNING and self._may_continue(sequence):
                preempted |= self._reserve(sequence, count, planned)
        if not preempted:
            self._start_waiting(planned)
        if not planned.counts:
            return None
        rows = tuple(self._launch(sequence, count) for sequence, count in planned.counts.items())
        return Step(rows, tuple(planned.imports))

    def commit(self, step: Step, sampled: SequenceOf[int]) -> list[tuple[Sequence, int]]:
        """Apply the results of a step.

        Args:
            step: The step.
            sampled: The sampled tokens, in the order of the rows that sample.

        Returns:
            The sequences that got a token, with the token. Sequences that have finished meanwhile are left out.
        """
        results = []
        tokens = iter(sampled)
        for row in step.rows:
            sequence = row.sequence
            token = next(tokens) if row.samples else None
            if sequence.state is SequenceState.FINISHED:
                continue
            if row.epoch == sequence.epoch:
                self._register(sequence, row.start + row.count)
            if token is not None:
                sequence.in_flight -= 1
                sequence.tokens.append(token)
                results.append((sequence, token))
        return results

    def forget_prefixes(self) -> None:
        """Forget cached prefixes, including those of running sequences."""
        self.pool.forget_all()
        for sequence in self.running:
            sequence.registered = len(sequence.tokens)  # so that no further block is registered
            self._end_computing(sequence)

    def forget_imports(self) -> None:
        """Compute the prompts of waiting sequences instead of importing them, because the weights have changed."""
        for sequence in self.waiting:
            sequence.importable = 0

    def _may_continue(self, sequence: Sequence) -> bool:
        if sequence.generated + sequence.in_flight >= sequence.max_tokens:
            return False  # its last token is in flight
        return not (sequence.needs_last_token and sequence.in_flight)

    def _launch(self, sequence: Sequence, count: int) -> ScheduledSequence:
        start = sequence.computed
        sequence.computed += count
        samples = sequence.computed == sequence.length
        sequence.in_flight += samples
        return ScheduledSequence(sequence, start, count, samples, sequence.epoch)

    def _reserve(self, sequence: Sequence, count: int, planned: _Draft) -> bool:
        """Plan `count` tokens of a running sequence. Return whether a sequence was preempted to make room."""
        preempted = False
        while len(sequence.blocks) * self.pool.block_size < sequence.computed + count:
            block = self.pool.allocate(after=sequence.blocks[-1] if sequence.blocks else None)
            if block is not None:
                sequence.blocks.append(block)
                continue
            victim = self.running[-1]
            planned.remove(victim)
            self._preempt(victim)
            preempted = True
            if victim is sequence:
                return True
        planned.add(sequence, count)
        return preempted

    def _preempt(self, sequence: Sequence) -> None:
        self._stop(sequence)
        sequence.state = SequenceState.WAITING
        sequence.computed = 0
        sequence.registered = 0
        sequence.epoch += 1
        sequence.preemptions += 1
        self.add(sequence)

    def _stop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._end_computing(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def _start_waiting(self, planned: _Draft) -> None:
        for sequence in list(self.waiting):
            if planned.budget <= 0 or len(self.running) >= self.max_sequences:
                return
            if sequence.in_flight or self._prefix_is_being_computed(sequence):
                continue
            if not self._start(sequence):
                return  # later sequences do not overtake it
            if sequence.importable:
                planned.imports += self._import(sequence)
            self._reserve(sequence, min(sequence.length - sequence.computed, planned.budget), planned)

    def _prefix_is_being_computed(self, sequence: Sequence) -> bool:
        """Return whether a running sequence will soon have computed more of this prefix than is cached."""
        if not self.prefix_caching:
            return False
        shareable = self._shareable_hashes(sequence)
        cached = len(self.pool.find(shareable))
        return cached < len(shareable) and shareable[cached] in self._computing

    def _start(self, sequence: Sequence) -> bool:
        """Start a waiting sequence with the cached blocks of its prefix, if there is room for all of its tokens."""
        cached = self.pool.find(self._shareable_hashes(sequence)) if self.prefix_caching else []
        self.pool.hold(cached)
        missing = -(-sequence.length // self.pool.block_size) - len(cached)
        if missing > self.pool.free_count:
            self.pool.release(cached)
            return False
        self.waiting.remove(sequence)
        bisect.insort(self.running, sequence, key=_order)
        sequence.state = SequenceState.RUNNING
        sequence.blocks = cached
        sequence.registered = len(cached)
        sequence.computed = len(cached) * self.pool.block_size
        if sequence.cached_tokens is None:
            sequence.cached_tokens = sequence.computed
        if self.prefix_caching:
            for each in sequence.hashes[len(cached) :]:
                self._computing.setdefault(each, sequence)
        return True

    def _import(self, sequence: Sequence) -> list[Import]:
        """Allocate blocks for the part of a prompt that is imported: what is not cached. `_start` made sure of them."""
        start, end = sequence.computed, sequence.importable
        sequence.importable = 0  # after a preemption, its tokens are computed
        while len(sequence.blocks) * self.pool.block_size < end:
            block = self.pool.allocate(after=sequence.blocks[-1] if sequence.blocks else None)
            assert block is not None
            sequence.blocks.append(block)
        sequence.computed = end
        return [Import(sequence, start, end - start)] if start < end else []

    def _shareable_hashes(self, sequence: Sequence) -> list[bytes]:
        """Return the hashes of the blocks that another sequence may have computed.

        The last token is always recomputed, because its logits are needed.
        """
        self._hash_full_blocks(sequence, len(sequence.tokens))
        return sequence.hashes[: (len(sequence.tokens) - 1) // self.pool.block_size]

    def _hash_full_blocks(self, sequence: Sequence, length: int) -> None:
        size = self.pool.block_size
        for index in range(len(sequence.hashes), length // size):
            previous = sequence.hashes[index - 1] if index else sequence.root
            sequence.hashes.append(block_hash(previous, sequence.tokens[index * size : (index + 1) * size]))

    def _register(self, sequence: Sequence, computed: int) -> None:
        """Make the blocks that a step has filled available to other sequences."""
        if not self.prefix_caching:
            return
        full = computed // self.pool.block_size
        if full > sequence.registered:
            self._hash_full_blocks(sequence, computed)
        for index in range(sequence.registered, full):
            content = sequence.hashes[index]
            self.pool.register(sequence.blocks[index], content)
            self._computing.pop(content, None)
        sequence.registered = max(sequence.registered, full)

    def _end_computing(self, sequence: Sequence) -> None:
        for each in sequence.hashes:
            if self._computing.get(each) is sequence:
                del self._computing[each]


def _order(sequence: Sequence) -> tuple[int, int]:
    return sequence.order
