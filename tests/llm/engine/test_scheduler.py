"""The scheduler: chosen cases, and random histories checked after every step."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from skate.llm._engine.scheduler import Scheduler, Sequence, SequenceState, Step
from tests.llm.engine.tiny_models import make_scheduler


def sequence(
    length: int, *, max_tokens: int = 4, order: int = 0, first: int = 0, priority: int = 0
) -> Sequence:
    return Sequence(range(first, first + length), max_tokens=max_tokens, order=(priority, order))


def shape(step: Step | None) -> list[tuple[int, int, bool]]:
    assert step is not None
    return [(row.start, row.count, row.samples) for row in step.rows]


def run(scheduler: Scheduler) -> Step | None:
    """Plan a step and commit it, with token 7 for each row, ending sequences at their limit."""
    step = scheduler.plan()
    if step is not None:
        for each, _ in scheduler.commit(step, [7] * sum(row.samples for row in step.rows)):
            if each.generated >= each.max_tokens:
                scheduler.finish(each)
    return step


def test_a_prompt_is_computed_and_then_one_token_after_another() -> None:
    scheduler = make_scheduler(8)
    only = sequence(5, max_tokens=3)
    scheduler.add(only)
    assert [shape(run(scheduler)) for _ in range(3)] == [[(0, 5, True)], [(5, 1, True)], [(6, 1, True)]]
    assert only.tokens == [0, 1, 2, 3, 4, 7, 7, 7]
    assert only.state is SequenceState.FINISHED
    assert scheduler.plan() is None


def test_a_long_prompt_takes_several_steps_while_others_generate() -> None:
    scheduler = make_scheduler(32, max_step_tokens=8)
    scheduler.add(sequence(3, order=1))
    run(scheduler)
    scheduler.add(sequence(12, order=2, first=40))
    assert shape(run(scheduler)) == [(3, 1, True), (0, 7, False)]
    assert shape(run(scheduler)) == [(4, 1, True), (7, 5, True)]


def test_a_step_may_be_planned_before_the_last_one_is_committed() -> None:
    scheduler = make_scheduler(8)
    only = sequence(5, max_tokens=2)
    scheduler.add(only)
    first, second = scheduler.plan(), scheduler.plan()
    assert (shape(first), shape(second)) == ([(0, 5, True)], [(5, 1, True)])
    assert scheduler.plan() is None  # its last token is in flight
    assert first is not None
    assert second is not None
    scheduler.commit(first, [7])
    scheduler.commit(second, [8])
    assert only.tokens[5:] == [7, 8]


def test_a_sequence_that_needs_its_last_token_waits_for_it() -> None:
    scheduler = make_scheduler(8)
    scheduler.add(Sequence([1, 2], max_tokens=4, needs_last_token=True))
    first = scheduler.plan()
    assert first is not None
    assert scheduler.plan() is None
    scheduler.commit(first, [7])
    assert shape(scheduler.plan()) == [(2, 1, True)]


def test_an_equal_prefix_is_not_computed_again() -> None:
    scheduler = make_scheduler(16)
    scheduler.add(sequence(10, max_tokens=1, order=1))
    run(scheduler)
    second = sequence(10, max_tokens=1, order=2)
    scheduler.add(second)
    assert shape(run(scheduler)) == [(8, 2, True)]
    assert second.cached_tokens == 8


def test_the_last_token_of_a_cached_prompt_is_computed_again() -> None:
    scheduler = make_scheduler(16)
    scheduler.add(sequence(8, max_tokens=1, order=1))
    run(scheduler)
    scheduler.add(sequence(8, max_tokens=1, order=2))
    assert shape(run(scheduler)) == [(4, 4, True)]


def test_equal_prompts_that_arrive_together_are_computed_once() -> None:
    scheduler = make_scheduler(32, max_step_tokens=32)
    for order in range(3):
        scheduler.add(sequence(12, order=order))
    assert shape(run(scheduler)) == [(0, 12, True)]
    assert shape(run(scheduler)) == [(12, 1, True), (8, 4, True), (8, 4, True)]


def test_without_prefix_caching_every_prompt_is_computed() -> None:
    scheduler = make_scheduler(32, max_step_tokens=32, prefix_caching=False)
    for order in range(2):
        scheduler.add(sequence(12, order=order))
    assert shape(run(scheduler)) == [(0, 12, True), (0, 12, True)]


def test_the_sequence_that_started_last_gives_up_its_blocks() -> None:
    scheduler = make_scheduler(4)
    first, second = sequence(7, order=1, max_tokens=6), sequence(7, order=2, first=50, max_tokens=6)
    scheduler.add(first)
    scheduler.add(second)
    run(scheduler)
    run(scheduler)
    step = run(scheduler)  # the ninth token of each needs a third block
    assert step is not None
    assert [row.sequence for row in step.rows] == [first]
    assert (second.state, second.preemptions, second.blocks) == (SequenceState.WAITING, 1, [])
    while run(scheduler):
        pass
    assert (first.generated, second.generated) == (6, 6)


def test_a_preempted_sequence_keeps_the_token_that_was_in_flight() -> None:
    scheduler = make_scheduler(4)
    first, second = sequence(7, order=1, max_tokens=9), sequence(7, order=2, first=50, max_tokens=9)
    scheduler.add(first)
    scheduler.add(second)
    steps = [scheduler.plan(), scheduler.plan(), scheduler.plan()]
    assert second.preemptions == 1
    for step in steps:
        assert step is not None
        scheduler.commit(step, [7] * sum(row.samples for row in step.rows))
    assert (first.generated, second.generated) == (3, 2)


def test_sequences_start_by_priority_and_then_by_arrival() -> None:
    scheduler = make_scheduler(32, max_sequences=1)
    late = sequence(2, order=3, max_tokens=1, priority=-1)
    for each in (sequence(2, order=1, max_tokens=1), sequence(2, order=2, max_tokens=1), late):
        scheduler.add(each)
    started = []
    while step := run(scheduler):
        started.append(step.rows[0].sequence.order)
    assert started == [(-1, 3), (0, 1), (0, 2)]


def test_a_large_prompt_is_not_overtaken_for_ever() -> None:
    scheduler = make_scheduler(4, max_sequences=4)
    scheduler.add(sequence(6, order=1, max_tokens=3))
    run(scheduler)
    large = sequence(14, order=2, max_tokens=1, first=50)
    scheduler.add(large)
    scheduler.add(sequence(2, order=3, max_tokens=1, first=80))
    step = run(scheduler)
    assert step is not None
    assert len(step.rows) == 1  # the small one waits behind the large one


def test_results_of_a_finished_sequence_are_ignored() -> None:
    scheduler = make_scheduler(8)
    gone, stays = sequence(3, order=1), sequence(3, order=2, first=50)
    scheduler.add(gone)
    scheduler.add(stays)
    step = scheduler.plan()
    assert step is not None
    scheduler.finish(gone)
    assert scheduler.commit(step, [7, 8]) == [(stays, 8)]


def test_a_step_must_have_room_for_a_token_of_every_sequence() -> None:
    with pytest.raises(ValueError, match=r"max_step_tokens \(4\) must be at least max_sequences \(8\)"):
        make_scheduler(8, max_sequences=8, max_step_tokens=4)


class Histories(RuleBasedStateMachine):
    """Random requests, aborts and steps in flight, on a pool that is nearly too small."""

    BLOCKS = 10

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make_scheduler(self.BLOCKS, block_size=2, max_sequences=4, max_step_tokens=6)
        self.steps: list[Step] = []
        self.all: list[Sequence] = []

    @rule(
        prefix=st.integers(0, 8),
        rest=st.integers(1, 6),
        outputs=st.integers(1, 5),
        priority=st.integers(0, 1),
        waits=st.booleans(),
        is_imported=st.booleans(),
    )
    def add(
        self, prefix: int, rest: int, outputs: int, priority: int, waits: bool, is_imported: bool
    ) -> None:
        number = len(self.all)
        prompt = [*range(prefix), *([100 + number] * rest)]
        added = Sequence(
            prompt,
            max_tokens=outputs + is_imported,
            order=(priority, number),
            needs_last_token=waits,
            first_token=7 if is_imported else None,
        )
        self.all.append(added)
        self.scheduler.add(added)

    @precondition(lambda self: len(self.steps) < 2)
    @rule()
    def plan(self) -> None:
        step = self.scheduler.plan()
        if step is not None:
            assert step.tokens <= self.scheduler.max_step_tokens
            self.check_that_no_written_block_is_shared(step)
            self.steps.append(step)

    @precondition(lambda self: self.steps)
    @rule()
    def commit(self) -> None:
        step = self.steps.pop(0)
        for each, _ in self.scheduler.commit(step, [7] * sum(row.samples for row in step.rows)):
            if each.generated >= each.max_tokens:
                self.scheduler.finish(each)

    @precondition(lambda self: any(each.state is not SequenceState.FINISHED for each in self.all))
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        live = [each for each in self.all if each.state is not SequenceState.FINISHED]
        self.scheduler.finish(data.draw(st.sampled_from(live)))

    @rule()
    def forget_prefixes(self) -> None:
        self.scheduler.forget_prefixes()

    @rule()
    def forget_imports(self) -> None:
        self.scheduler.forget_imports()

    def check_that_no_written_block_is_shared(self, step: Step) -> None:
        size = self.scheduler.pool.block_size
        written: Counter[int] = Counter()
        for row in step.rows:
            first, last = row.start // size, (row.start + row.count - 1) // size
            blocks = row.sequence.blocks[first : last + 1]
            assert len(blocks) == last - first + 1
            written.update(blocks)
            assert all(self.scheduler.pool.holders(block) == 1 for block in blocks)
        for each in step.imports:
            blocks = each.sequence.blocks[each.start // size : -(-(each.start + each.count) // size)]
            assert each.start % size == 0
            assert all(self.scheduler.pool.holders(block) == 1 for block in blocks)
            written.update(set(blocks) - set(each.sequence.blocks[(each.start + each.count) // size :]))
        assert all(count == 1 for count in written.values())

    @invariant()
    def every_block_is_free_or_held(self) -> None:
        held = Counter(block for each in self.all for block in each.blocks)
        pool = self.scheduler.pool
        assert all(pool.holders(block) == held[block] for block in range(pool.count))
        assert pool.free_count == pool.count - len(held)

    @invariant()
    def sequences_are_where_their_state_says(self) -> None:
        running, waiting = self.scheduler.running, self.scheduler.waiting
        for each in self.all:
            assert (each in running) is (each.state is SequenceState.RUNNING)
            assert (each in waiting) is (each.state is SequenceState.WAITING)
            assert each.generated <= each.max_tokens
        assert len(running) <= self.scheduler.max_sequences

    def teardown(self) -> None:
        """Everything that was admitted ends within a bounded number of steps."""
        for _ in range(2000):
            if self.steps:
                self.commit()
            elif (step := self.scheduler.plan()) is not None:
                self.steps.append(step)
            else:
                break
        assert all(each.state is SequenceState.FINISHED for each in self.all)
        assert self.scheduler.pool.free_count == self.BLOCKS


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_random_histories = Histories.TestCase
