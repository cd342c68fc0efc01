"""Search with FLAML's BlendSearch in trials of Ray Tune, which ASHA stops early."""

from flaml import tune
from reporting import report

LAST_STEP = 4


def loss(x, y, step):
    return (x - 3) ** 2 + (y - 5) ** 2 + 1 / step


def evaluate(config):
    for step in range(1, LAST_STEP + 1):
        tune.report(loss=loss(config["x"], config["y"], step), step=step)


analysis = tune.run(
    evaluate,
    config={"x": tune.lograndint(1, 50), "y": tune.uniform(0, 10), "kind": tune.choice(["a", "b"])},
    low_cost_partial_config={"x": 1},
    search_alg="BlendSearch",
    scheduler="asha",
    resource_attr="step",
    min_resource=1,
    max_resource=LAST_STEP,
    reduction_factor=2,
    metric="loss",
    mode="min",
    num_samples=12,
    use_ray=True,
    resources_per_trial={"cpu": 1},
    local_dir=".",
)
last = [trial.last_result for trial in analysis.trials]
report(
    result={
        "losses": [each["loss"] for each in last],
        "steps": [each["step"] for each in last],
        "best": analysis.best_result["loss"],
    },
    expected=[loss(each["config"]["x"], each["config"]["y"], each["step"]) for each in last],
    pids=(each["pid"] for each in last),
)
