"""Early stopping: the work that ASHA needs to reach the best score of random search, on handwritten digits."""

from __future__ import annotations

import statistics
import tempfile
import warnings
from typing import Any

import meter

import skate
from skate import tune
from skate.tune.schedulers import ASHAScheduler
from skate.tune.search import BasicVariantGenerator

TRIALS, EPOCHS, SEEDS = 24, 16, 7

job = meter.Job()


class ReachesScore(tune.Stopper):
    """Counts epochs, and ends the experiment at a score."""

    def __init__(self, score: float = 1.0) -> None:
        self.epochs = 0
        self.best = 0.0
        self._score = score

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.epochs += not self.stop_all()
        self.best = max(self.best, result["accuracy"])
        return False

    def stop_all(self) -> bool:
        return self.best >= self._score


def train(config: dict[str, Any], data: Any) -> None:
    """Train a small network for some epochs, and report its accuracy after each."""
    import numpy as np
    from sklearn.neural_network import MLPClassifier

    x, x_test, y, y_test = data
    model = MLPClassifier(
        (config["width"],), learning_rate_init=config["lr"], alpha=config["alpha"], random_state=0
    )
    order = np.random.default_rng(0)
    for _ in range(EPOCHS):
        rows = order.permutation(len(x))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # poor configurations overflow
            model.partial_fit(x[rows], y[rows], classes=range(10))
        tune.report({"accuracy": model.score(x_test, y_test)})


def search(data: Any, seed: int, stopper: tune.Stopper, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            tune.with_parameters(train, data=data),
            param_space={
                "lr": tune.loguniform(1e-4, 1),
                "width": tune.choice([16, 32, 64]),
                "alpha": tune.loguniform(1e-6, 1e-1),
            },
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                search_alg=BasicVariantGenerator(random_state=seed),
                **options,
            ),
            run_config=tune.RunConfig(name="digits", storage_path=folder, stop=stopper, verbose=0),
        ).fit()


def tune_asha() -> float:
    """Return the epochs of ASHA in percent of those of random search; the median of several seeds."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    data = train_test_split(images / 16, labels, random_state=0)
    shares = []
    for seed in range(SEEDS):
        random_search = ReachesScore()
        search(data, seed, random_search, num_samples=TRIALS)
        asha = ReachesScore(random_search.best)
        scheduler = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=4)
        search(data, seed, asha, num_samples=20 * TRIALS, scheduler=scheduler)
        shares.append(100 * asha.epochs / random_search.epochs)
    return statistics.median(shares)


job.run_on(skate, tune_asha)
