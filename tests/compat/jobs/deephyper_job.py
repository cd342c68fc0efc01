"""Search hyperparameters with DeepHyper's Ray evaluator, its records kept by a named Ray actor."""

import os
import tempfile

from deephyper.evaluator import Evaluator
from deephyper.hpo import HpProblem, RandomSearch
from reporting import report


def objective(x, y):
    return -((x - 2.0) ** 2) - (y + 1) ** 2


def run(job):
    """Try what DeepHyper proposes."""
    return {
        "objective": objective(job.parameters["x"], job.parameters["y"]),
        "metadata": {"pid": os.getpid()},
    }


problem = HpProblem()
problem.add((-5.0, 5.0), "x")
problem.add((-3, 3), "y")
evaluator = Evaluator.create(run, method="ray", method_kwargs={"num_cpus": 2, "num_cpus_per_task": 1})
with tempfile.TemporaryDirectory() as folder:
    search = RandomSearch(problem, random_state=5, log_dir=folder)
    trials = search.search(evaluator, max_evals=20, max_evals_strict=True)
report(
    result=trials["objective"].tolist(),
    expected=[objective(x, y) for x, y in zip(trials["p:x"], trials["p:y"], strict=True)],
    pids=(int(pid) for pid in trials["m:pid"]),
)
