"""Try many settings at once, give up early on the bad ones, and keep the best.

Shows a grid of settings, trials that report as they go, a scheduler that stops those which fall behind, and the best
of the results.

Prints:

    6 trials, none failed
    best: rate 0.7, momentum 0.0
    it came within 0.01 of the valley floor: True
"""

# needs: core, tune

import tempfile

from ray import tune
from ray.tune.schedulers import ASHAScheduler


def roll_downhill(config):
    """Roll a ball into a valley; report how far from its floor it is."""
    place, speed = 10.0, 0.0
    for _ in range(20):
        speed = config["momentum"] * speed - config["rate"] * place
        place += speed
        tune.report({"distance": abs(place)})


with tempfile.TemporaryDirectory() as storage:
    tuner = tune.Tuner(
        tune.with_resources(roll_downhill, {"cpu": 0.5}),
        param_space={"rate": tune.grid_search([0.01, 0.1, 0.7]), "momentum": tune.grid_search([0.0, 0.5])},
        tune_config=tune.TuneConfig(
            metric="distance", mode="min", scheduler=ASHAScheduler(max_t=20, grace_period=5)
        ),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    )
    results = tuner.fit()

best = results.get_best_result()
print(f"{len(results)} trials,", "none failed" if not results.errors else results.errors)
print("best: rate {rate}, momentum {momentum}".format(**best.config))
print("it came within 0.01 of the valley floor:", best.metrics["distance"] < 0.01)
