"""Choose a model and its hyperparameters with FLAML's AutoML, two trials of Ray Tune at a time."""

import json
from pathlib import Path

from flaml import AutoML
from reporting import report
from sklearn.datasets import load_digits

TRIALS = 8

images, digits = load_digits(return_X_y=True)
automl = AutoML()
automl.fit(
    images[:600],
    digits[:600],
    task="classification",
    metric="accuracy",
    estimator_list=["lgbm", "rf", "extra_tree"],
    eval_method="holdout",
    max_iter=TRIALS,
    time_budget=1000,  # more than the test waits: the number of trials ends the search
    n_concurrent_trials=2,
    use_ray={"local_dir": ".", "name": "automl"},
    seed=1,
    verbose=0,
)
results = [json.loads(path.read_text().splitlines()[-1]) for path in Path("automl").glob("*/result.json")]
report(
    result={
        "trials": len(results),
        "best loss": automl.best_loss,
        "accuracy": automl.score(images[600:], digits[600:]),
    },
    expected={"trials": TRIALS, "best loss": min(each["val_loss"] for each in results)},
    pids=(each["pid"] for each in results),
)
