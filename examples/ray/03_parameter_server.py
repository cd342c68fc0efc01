"""Fit a line with a parameter server: first in step, then each worker at its own pace.

Shows an actor that holds what all share, actors that keep their part of the data, references that are resolved
before a method runs, and `ray.wait` to serve the workers that are ready.

Prints:

    in step: weights 2.00 -1.00 0.50 after 60 updates
    at will: weights 2.00 -1.00 0.50 after 240 updates
"""

# needs: core

import numpy as np
import ray

TRUTH = np.array([2.0, -1.0, 0.5])
WORKERS = 2


@ray.remote
class ParameterServer:
    """Holds the weights and moves them against the gradients it is given."""

    def __init__(self, size, rate):
        self.weights = np.zeros(size)
        self.rate = rate
        self.updates = 0

    def apply(self, *gradients):
        self.weights = self.weights - self.rate * np.mean(gradients, axis=0)
        self.updates += 1
        return self.weights

    def read(self):
        return self.weights, self.updates


@ray.remote
class Worker:
    """Has a part of the data, and says which way the error grows there."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.inputs = np.column_stack([rng.normal(size=(200, 2)), np.ones(200)])
        self.outputs = self.inputs @ TRUTH

    def gradient(self, weights):
        return 2 * self.inputs.T @ (self.inputs @ weights - self.outputs) / len(self.outputs)


def report(how, server):
    weights, updates = ray.get(server.read.remote())
    print(f"{how}: weights", *(f"{weight:.2f}" for weight in weights), f"after {updates} updates")


workers = [Worker.remote(seed) for seed in range(WORKERS)]

server = ParameterServer.remote(size=3, rate=0.2)
weights = np.zeros(3)
for _ in range(60):
    # Nothing of this waits: the weights of one round are a future that the next round takes as its argument.
    weights = server.apply.remote(*(worker.gradient.remote(weights) for worker in workers))
report("in step", server)

server = ParameterServer.remote(size=3, rate=0.1)
weights, _ = ray.get(server.read.remote())
busy = {worker.gradient.remote(weights): worker for worker in workers}
for _ in range(240):
    (gradient,), _ = ray.wait(list(busy))
    worker = busy.pop(gradient)
    busy[worker.gradient.remote(server.apply.remote(gradient))] = worker
report("at will", server)
