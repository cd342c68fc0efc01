"""Optuna alone: the same searches in one process, without workers, checkpoints or a journal."""

from __future__ import annotations

from typing import Any


def measure() -> None:
    import meter
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    job = meter.Job()

    def objective(trial: Any) -> float:
        return float((trial.suggest_float("x", 0, 6) - 3) ** 2)

    def search(trials: int, sampler: Any) -> None:
        optuna.create_study(sampler=sampler).optimize(objective, n_trials=trials)

    def tune_50() -> float:
        return job.once(lambda: None, lambda: search(50, optuna.samplers.TPESampler()))

    def tune_1000() -> float:
        sampler = optuna.samplers.RandomSampler()
        return job.once(lambda: search(10, sampler), lambda: search(1000, sampler))

    job.run(tune_50, tune_1000)


if __name__ == "__main__":
    measure()
