"""A sharded checkpoint is resumed by a different number of workers than wrote it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

from skate.train import Checkpoint, Result, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer
from tests.train.strategies.conftest import Weights, assert_equal, read_shards

# Six workers start in three runs: where they are not forked, they import torch each time.
pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine"), pytest.mark.timeout(400)]


@pytest.fixture
def train(
    example: Callable[[str], ModuleType], run_config: Callable[..., RunConfig]
) -> Callable[[int, int, Checkpoint | None], Result]:
    """Train the sharded example with some workers up to a step."""
    example("tiny_lm")
    fsdp2 = example("fsdp2")

    def fit(workers: int, steps: int, checkpoint: Checkpoint | None) -> Result:
        return TorchTrainer(
            fsdp2.learn,
            train_loop_config={"steps": steps},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=run_config(f"{workers}-{steps}"),
            resume_from_checkpoint=checkpoint,
        ).fit()

    return fit


def test_two_workers_write_and_one_and_three_go_on(
    train: Callable[[int, int, Checkpoint | None], Result], learned_alone: Callable[[int], Weights]
) -> None:
    written = train(2, 6, None).checkpoint
    for workers in (1, 3):
        result = train(workers, 12, written)
        assert result.metrics is not None
        assert result.metrics["began"] == 6
        parts = result.rank_metrics().groupby("rank")["here"].last()
        assert len(parts) == workers
        assert parts.sum() == result.metrics["everything"]
        assert result.checkpoint is not None
        found = read_shards(Path(result.checkpoint.path), learned_alone(12))
        assert_equal(found, learned_alone(12))
