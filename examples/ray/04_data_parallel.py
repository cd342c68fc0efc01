"""Train one network on two workers, each with half of the data, and keep the copies equal.

Shows a placement group that reserves room for all workers or for none, actors that form a collective group, and
gradients averaged between them without passing through the driver.

Prints:

    2 workers, 2 bundles reserved
    the copies are equal: True
    loss fell below a quarter of what it was: True
    equal to training alone on all data: True
"""

# needs: core
# engines: local, for a collective operation needs its partners at the same time

import ray
import torch
from ray.util import collective
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

WORKERS, STEPS, RATE = 2, 60, 0.1


def make_data():
    """Return points on a plane and whether they lie inside a circle."""
    points = torch.rand(256, 2, generator=torch.Generator().manual_seed(1)) * 2 - 1
    return points, (points.square().sum(1, keepdim=True) < 0.6).float()


class Learner:
    """A small network, the part of the data it learns from, and one step of learning."""

    def __init__(self, rank, size):
        torch.manual_seed(2)  # The copies start equal, and equal gradients keep them so.
        torch.set_num_threads(1)
        self.size = size
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.points, self.labels = (part[rank::size] for part in make_data())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=RATE)

    def train(self, steps):
        """Return the mean loss of the first and of the last step, and the weights."""
        losses = []
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(self.net(self.points), self.labels)
            loss.backward()
            shared = [loss.detach().reshape(1), *(weight.grad for weight in self.net.parameters())]
            for tensor in shared:
                self.average(tensor)
            self.optimizer.step()
            losses.append(shared[0].item())
        return (
            losses[0],
            losses[-1],
            torch.cat([weight.detach().flatten() for weight in self.net.parameters()]),
        )

    def average(self, tensor):
        """Replace a tensor by its mean over all learners; alone, it is its own mean."""


@ray.remote(num_cpus=1)
class Worker(Learner):
    """A learner among others."""

    def join(self, rank):
        collective.init_collective_group(self.size, rank, backend="gloo", group_name="learners")

    def average(self, tensor):
        collective.allreduce(tensor, group_name="learners")
        tensor /= self.size


ray.init(num_cpus=WORKERS)
group = placement_group([{"CPU": 1}] * WORKERS, strategy="PACK")
ray.get(group.ready())
workers = [
    Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank)).remote(rank, WORKERS)
    for rank in range(WORKERS)
]
print(f"{len(workers)} workers, {group.bundle_count} bundles reserved")

ray.get([worker.join.remote(rank) for rank, worker in enumerate(workers)])
(first, last, mine), (_, _, yours) = ray.get([worker.train.remote(STEPS) for worker in workers])
_, _, alone = Learner(rank=0, size=1).train(STEPS)
print("the copies are equal:", torch.equal(mine, yours))
print("loss fell below a quarter of what it was:", last < first / 4)
print("equal to training alone on all data:", torch.allclose(mine, alone, atol=1e-3))

for worker in workers:
    ray.kill(worker)
remove_placement_group(group)
