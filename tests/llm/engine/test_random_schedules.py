"""Random arrivals, preemptions and aborts change no token."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import pytest
import torch

from skate.llm._engine.runner import LaunchedStep, Runner
from skate.llm._engine.scheduler import Sequence, SequenceState, Step
from tests.llm.engine.device_runners import GREEDY, make_device_runner
from tests.llm.engine.tiny_models import VOCABULARY, make_runner, make_scheduler, plain_logits, small_decoder

SHARED_PREFIX = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


@dataclass
class Schedule:
    """Requests that arrive at random steps of an engine with random limits, some of which are aborted."""

    seed: int
    ahead: bool = False  # steps are launched before the results of the ones before them are known
    preemptions: int = 0
    cached_tokens: int = 0
    most_launched: int = 0

    def run(self) -> None:
        rng = random.Random(self.seed)
        block_size = rng.choice((1, 2, 4, 8))
        blocks = -(-36 // block_size) + rng.randrange(3)
        scheduler = make_scheduler(
            blocks,
            block_size=block_size,
            max_sequences=rng.randint(2, 6),
            max_step_tokens=rng.choice((6, 9, 40)),
            prefix_caching=rng.random() < 0.8,
        )
        runner: Runner = (
            make_device_runner(small_decoder(), scheduler, blocks)
            if self.ahead
            else make_runner(small_decoder(), scheduler)
        )
        to_come = [self.request(rng, number) for number in range(rng.randint(1, 6))]
        arrived: list[Sequence] = []
        launched: deque[tuple[Step, LaunchedStep]] = deque()
        while to_come or scheduler.running or scheduler.waiting or launched:
            while to_come and rng.random() < 0.5:
                arrived.append(to_come.pop())
                scheduler.add(arrived[-1])
            if arrived and rng.random() < 0.02:
                gone = rng.choice(arrived)
                if gone.state is not SequenceState.FINISHED:
                    scheduler.finish(gone)
            step = scheduler.plan()
            if step is not None:
                launched.append((step, runner.launch(step, [GREEDY] * len(step.rows))))
                self.most_launched = max(self.most_launched, len(launched))
            if launched and (step is None or len(launched) == runner.depth):
                done, results = launched.popleft()
                for sequence, _ in scheduler.commit(done, results.wait().tokens):
                    if sequence.generated >= sequence.max_tokens:
                        scheduler.finish(sequence)
        assert scheduler.pool.free_count == scheduler.pool.count
        self.preemptions = sum(each.preemptions for each in arrived)
        self.cached_tokens = sum(each.cached_tokens or 0 for each in arrived)
        for sequence in arrived:
            check_against_one_pass(sequence)

    def request(self, rng: random.Random, number: int) -> Sequence:
        prefix = SHARED_PREFIX[: rng.choice((0, 5, 12))]
        rest = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))]
        return Sequence(
            prefix + rest,
            max_tokens=rng.randint(1, 12),
            order=(rng.randrange(2), number),
            needs_last_token=not self.ahead or rng.random() < 0.3,
        )


def check_against_one_pass(sequence: Sequence) -> None:
    """Check that each chosen token has the greatest logit when the sequence is computed in one pass."""
    if not sequence.generated:
        return
    logits = plain_logits(small_decoder(), sequence.tokens[:-1])[sequence.prompt_length - 1 :]
    chosen = logits.gather(1, torch.tensor(sequence.tokens[sequence.prompt_length :])[:, None])[:, 0]
    assert (logits.max(dim=-1).values - chosen).max() <= 1e-4


def run_schedules(count: int, *, ahead: bool) -> tuple[int, int]:
    preemptions = cached = 0
    for seed in range(count):
        schedule = Schedule(seed, ahead)
        try:
            schedule.run()
        except Exception as error:
            error.add_note(f"in the schedule with seed {seed}")
            raise
        preemptions += schedule.preemptions
        cached += schedule.cached_tokens
    return preemptions, cached


@pytest.mark.parametrize("ahead", [False, True], ids=["one step at a time", "one step ahead"])
def test_every_token_is_the_one_that_a_single_pass_gives(ahead: bool) -> None:
    preemptions, cached = run_schedules(150, ahead=ahead)
    assert preemptions > 50, "the schedules are meant to preempt"
    assert cached > 500, "the schedules are meant to share prefixes"


def test_steps_are_launched_ahead() -> None:
    schedule = Schedule(1, ahead=True)
    schedule.run()
    assert schedule.most_launched == 2
