"""Optuna alone: the same random search in one process, without workers, checkpoints or a journal."""

from __future__ import annotations

from typing import Any


def measure() -> None:
    import meter
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    job = meter.Job()

    def objective(trial: Any) -> float:
        return float((trial.suggest_float("x", 0, 6) - 3) ** 2)

    def search(trials: int) -> None:
        optuna.create_study(sampler=optuna.samplers.RandomSampler()).optimize(objective, n_trials=trials)

    def tune_50() -> float:
        return job.once(lambda: None, lambda: search(50))

    def tune_1000() -> float:
        return job.once(lambda: search(10), lambda: search(1000))

    job.run(tune_50, tune_1000)


if __name__ == "__main__":
    measure()
