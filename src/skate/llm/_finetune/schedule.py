"""The learning rate of each step, and when to evaluate, save a checkpoint and stop early."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skate.llm._finetune.config import FinetuneConfig


def learning_rate(config: FinetuneConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step. It rises during the warm-up and then falls to 0, unless it is constant."""
    assert config.learning_rate is not None
    warm_up = config.warmup_steps
    if warm_up is None:
        warm_up = math.ceil(config.warmup_ratio * steps)
    if step < warm_up:
        return config.learning_rate * (step + 1) / warm_up
    if config.lr_scheduler == "constant":
        return config.learning_rate
    done = (step - warm_up) / max(1, steps - warm_up)
    if config.lr_scheduler == "linear":
        return config.learning_rate * (1 - done)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


@dataclass(frozen=True)
class Intervals:
    """The number of steps between two evaluations and between two checkpoints."""

    evaluate: int
    save: int
    steps: int

    @classmethod
    def of(cls, config: FinetuneConfig, *, steps: int, epoch_steps: int) -> Intervals:
        """Return the intervals of a run."""
        evaluate = config.eval_steps or max(1, math.ceil(epoch_steps / config.evals_per_epoch))
        save = config.save_steps or max(1, math.ceil(epoch_steps / config.saves_per_epoch))
        if config.early_stopping_patience:
            save = evaluate  # any evaluated model may turn out to be the best
        return cls(evaluate, save, steps)

    def evaluates(self, done: int) -> bool:
        """Return whether to evaluate after `done` steps."""
        return done % self.evaluate == 0 or done == self.steps

    def saves(self, done: int) -> bool:
        """Return whether to save a checkpoint after `done` steps."""
        return done % self.save == 0 or done == self.steps


@dataclass
class Progress:
    """The progress of a run, which checkpoints contain."""

    step: int = 0
    tokens: int = 0
    batch: int = 0
    best_loss: float | None = None
    worse: int = 0  # evaluations since the best one

    def evaluated(self, loss: float) -> None:
        """Record the loss of an evaluation."""
        if self.best_loss is None or loss < self.best_loss:
            self.best_loss, self.worse = loss, 0
        else:
            self.worse += 1

    def is_hopeless(self, patience: int | None) -> bool:
        """Return whether the loss has not improved for too many evaluations."""
        return patience is not None and self.worse >= patience
