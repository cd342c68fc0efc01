"""Minimise two objectives with pymoo's NSGA-II, each solution evaluated by a Ray task."""

import os

import ray
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.core.problem import ElementwiseProblem
from pymoo.optimize import minimize
from pymoo.parallelization.ray import RayParallelization
from reporting import report


class TwoValleys(ElementwiseProblem):
    """Come close to (0, 0) and to (1, 1) at once."""

    def __init__(self, **options):
        super().__init__(n_var=2, n_obj=2, xl=-2.0, xu=2.0, **options)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = [(x**2).sum(), ((x - 1) ** 2).sum()]
        out["pid"] = os.getpid()


def front_of(**options):
    """Return the non-dominated solutions after ten generations, and who evaluated the last of them."""
    found = minimize(TwoValleys(**options), NSGA2(pop_size=20), ("n_gen", 10), seed=1)
    return found.F.tolist(), {int(one.get("pid")) for one in found.pop}


ray.init(num_cpus=2)
front, pids = front_of(elementwise_runner=RayParallelization())
serial_front, _ = front_of()
report(result=front, expected=serial_front, pids=pids)
