"""Search for good hyper-parameters of a small neural network on handwritten digits.

Each trial trains with another learning rate, layer size and regularization, and reports its accuracy after every epoch.
ASHA stops the trials that fall behind, so most of the time is spent on the promising ones.

    python examples/10_tune.py
    python examples/10_tune.py --samples 60 --search optuna    # needs optuna
"""

import argparse
import tempfile
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from skate import tune
from skate.tune.schedulers import ASHAScheduler
from skate.tune.search.optuna import OptunaSearch

EPOCHS = 16


def train(config: dict, data: tuple) -> None:
    """Train for some epochs, and report the accuracy on the test set after each."""
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--samples", type=int, default=24)
    options.add_argument("--search", choices=("random", "optuna"), default="random")
    options = options.parse_args()

    images, labels = load_digits(return_X_y=True)
    data = train_test_split(images / 16, labels, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        results = tune.Tuner(
            tune.with_parameters(train, data=data),
            param_space={
                "lr": tune.loguniform(1e-4, 1),
                "width": tune.choice([16, 32, 64]),
                "alpha": tune.loguniform(1e-6, 1e-1),
            },
            tune_config=tune.TuneConfig(
                metric="accuracy",
                mode="max",
                num_samples=options.samples,
                search_alg=OptunaSearch(seed=0) if options.search == "optuna" else None,
                scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=4),
            ),
            run_config=tune.RunConfig(name="digits", storage_path=folder),
        ).fit()

        table = results.get_dataframe().sort_values("accuracy", ascending=False)
        print(
            table[["accuracy", "training_iteration", "config/lr", "config/width"]]
            .head()
            .to_string(index=False)
        )
        epochs = sum(result.metrics["training_iteration"] for result in results)
        best = results.get_best_result()
        print(f"best accuracy {best.metrics['accuracy']:.3f} with {best.config}")
        print(f"{epochs} epochs, of {options.samples * EPOCHS} without early stopping")


if __name__ == "__main__":
    main()
