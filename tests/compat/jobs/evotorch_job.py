"""Search for the minimum of a sphere with EvoTorch's CMA-ES, its population evaluated by two Ray actors."""

import os

import torch
from evotorch import Problem
from evotorch.algorithms import CMAES
from evotorch.decorators import vectorized
from reporting import report


@vectorized
def sphere(solutions):
    pids = torch.full((len(solutions), 1), float(os.getpid()))
    return torch.sum(solutions**2, dim=-1), pids


def search(num_actors):
    """Return the best value after 40 generations, and who evaluated the last one."""
    problem = Problem(
        "min",
        sphere,
        solution_length=5,
        initial_bounds=(-10, 10),
        eval_data_length=1,
        num_actors=num_actors,
    )
    # EvoTorch draws seeds for its actors when it starts them; from here on, both searches draw the same numbers.
    problem.evaluate(problem.generate_batch(4))
    torch.manual_seed(7)
    searcher = CMAES(problem, stdev_init=3.0, popsize=16)
    searcher.run(40)
    pids = {int(pid) for pid in searcher.population.evals[:, 1]}
    best = float(searcher.status["best_eval"])
    if num_actors:
        problem.kill_actors()
    return best, pids


best, pids = search(num_actors=2)
alone, _ = search(num_actors=0)
report(result=best, expected=alone, pids=pids)
