"""Random arrivals, preemptions, adapters and aborts change no token."""

from __future__ import annotations

import functools
import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
import torch

from skate.llm._engine.adapters import Adapter
from skate.llm._engine.blocks import root_hash
from skate.llm._engine.runner import LaunchedStep, Runner
from skate.llm._engine.scheduler import Scheduler, Sequence, SequenceState, Step
from tests.llm.engine.device_runners import GREEDY, PlainRequest, make_device_runner, make_gpu_runner
from tests.llm.engine.tiny_models import (
    CPU,
    VOCABULARY,
    make_runner,
    make_scheduler,
    plain_logits,
    small_adapter,
    small_decoder,
)

SHARED_PREFIX = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]


# A CPU that runs one step at a time; the runner of a GPU, which launches steps ahead, on a CPU; and a GPU.
Kind = Literal["cpu", "ahead", "gpu"]
KINDS = [
    pytest.param("cpu", id="one step at a time"),
    pytest.param("ahead", id="one step ahead"),
    pytest.param(
        "gpu", id="gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
    ),
]


@functools.cache
def adapters(device: torch.device) -> list[Adapter]:
    return [small_adapter(seed, device) for seed in range(2)]


@dataclass
class Schedule:
    """Requests that arrive at random steps of an engine with random limits, some of which are aborted."""

    seed: int
    kind: Kind = "cpu"
    preemptions: int = 0
    cached_tokens: int = 0
    most_launched: int = 0
    requests: dict[Sequence, PlainRequest] = field(default_factory=dict)

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
        runner = self.make_runner(scheduler, blocks, use_graphs=rng.random() < 0.7)
        adapted = rng.choice((0, 0.5))
        to_come = [self.request(rng, number, adapted) for number in range(rng.randint(1, 6))]
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
                launched.append(
                    (step, runner.launch(step, [self.requests[row.sequence] for row in step.rows]))
                )
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
            adapter = self.requests[sequence].adapter
            check_against_one_pass(sequence, adapter and adapters(CPU)[int(adapter.name)])

    def make_runner(self, scheduler: Scheduler, blocks: int, *, use_graphs: bool) -> Runner:
        if self.kind == "gpu":
            return make_gpu_runner(scheduler, blocks, use_graphs=use_graphs)
        if self.kind == "ahead":
            return make_device_runner(small_decoder(), scheduler, blocks, pads=use_graphs)
        return make_runner(small_decoder(), scheduler)

    def request(self, rng: random.Random, number: int, adapted: float) -> Sequence:
        prefix = SHARED_PREFIX[: rng.choice((0, 5, 12))]
        rest = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 12))]
        device = torch.device("cuda") if self.kind == "gpu" else CPU
        adapter = rng.choice(adapters(device)) if rng.random() < adapted else None
        sequence = Sequence(
            prefix + rest,
            max_tokens=rng.randint(1, 12),
            root=root_hash(adapter and adapter.name),
            order=(rng.randrange(2), number),
            needs_last_token=self.kind == "cpu" or rng.random() < 0.3,
        )
        self.requests[sequence] = replace(GREEDY, adapter=adapter)
        return sequence


def check_against_one_pass(sequence: Sequence, adapter: Adapter | None) -> None:
    """Check that each chosen token has the greatest logit when the sequence is computed in one pass."""
    if not sequence.generated:
        return
    logits = plain_logits(small_decoder(), sequence.tokens[:-1], adapter)[sequence.prompt_length - 1 :]
    chosen = logits.gather(1, torch.tensor(sequence.tokens[sequence.prompt_length :])[:, None])[:, 0]
    assert (logits.max(dim=-1).values - chosen).max() <= 1e-4


def run_schedules(seeds: range, kind: Kind) -> tuple[int, int]:
    preemptions = cached = 0
    for seed in seeds:
        schedule = Schedule(seed, kind)
        try:
            schedule.run()
        except Exception as error:
            error.add_note(f"in the schedule with seed {seed}")
            raise
        preemptions += schedule.preemptions
        cached += schedule.cached_tokens
    return preemptions, cached


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_the_one_that_a_single_pass_gives(kind: Kind) -> None:
    preemptions, cached = run_schedules(range(150), kind)
    assert preemptions > 50, "the schedules are meant to preempt"
    assert cached > 500, "the schedules are meant to share prefixes"


def test_steps_are_launched_ahead() -> None:
    schedule = Schedule(1, "ahead")
    schedule.run()
    assert schedule.most_launched == 2
