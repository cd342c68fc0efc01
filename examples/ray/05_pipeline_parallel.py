"""Train a network that is cut in two: the front half lives in one actor, the back half in another.

Shows model parallelism with nothing but actors: activations go forward and gradients come back as references, from
actor to actor, and micro-batches keep both halves at work.

Prints:

    loss after 20 epochs is as without a pipeline: True
    weights are as without a pipeline: True
    right answers: more than 9 of 10
"""

# needs: core

import ray
import torch

EPOCHS, MICRO_BATCHES, RATE = 20, 4, 0.5


def make_data():
    """Return points in space and the octant-like class of each: the signs of its first two coordinates."""
    points = torch.randn(256, 3, generator=torch.Generator().manual_seed(3))
    return points, (points[:, 0] > 0).long() * 2 + (points[:, 1] > 0).long()


def make_stages():
    torch.manual_seed(4)
    front = torch.nn.Sequential(torch.nn.Linear(3, 24), torch.nn.Tanh())
    back = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.Tanh(), torch.nn.Linear(24, 4))
    return front, back


class Stage:
    """Some layers, which remember what went through them until its gradient comes back."""

    def __init__(self, layers):
        torch.set_num_threads(1)
        self.layers = layers
        self.optimizer = torch.optim.SGD(layers.parameters(), lr=RATE)
        self.open = {}

    def weights(self):
        return torch.cat([weight.detach().flatten() for weight in self.layers.parameters()])

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


@ray.remote
class Front(Stage):
    """The first stage: takes the points."""

    def forward(self, batch, points):
        self.open[batch] = self.layers(points)
        return self.open[batch].detach()

    def backward(self, batch, gradient):
        self.open.pop(batch).backward(gradient)


@ray.remote
class Back(Stage):
    """The last stage: knows the answers, and where the gradients begin."""

    @ray.method(num_returns=2)
    def forward_backward(self, activations, labels):
        # A tensor that came through the object store is shared with others: this one is ours.
        inputs = activations.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(self.layers(inputs), labels) / MICRO_BATCHES
        loss.backward()
        return inputs.grad, loss.item()

    def right_answers(self, activations, labels):
        return (self.layers(activations).argmax(1) == labels).sum().item()


points, labels = make_data()
micro_batches = list(zip(points.chunk(MICRO_BATCHES), labels.chunk(MICRO_BATCHES), strict=True))

front_layers, back_layers = make_stages()
front, back = Front.remote(front_layers), Back.remote(back_layers)
for _ in range(EPOCHS):
    losses = []
    for batch, (some_points, some_labels) in enumerate(micro_batches):
        activations = front.forward.remote(batch, some_points)
        gradient, loss = back.forward_backward.remote(activations, some_labels)
        front.backward.remote(batch, gradient)
        losses.append(loss)
    # Calls of one caller run in order, so these come after every micro-batch.
    front.step.remote()
    back.step.remote()
pipelined = sum(ray.get(losses))

whole = torch.nn.Sequential(*make_stages())
optimizer = torch.optim.SGD(whole.parameters(), lr=RATE)
for _ in range(EPOCHS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(whole(points), labels)
    loss.backward()
    optimizer.step()

expected = torch.cat([weight.detach().flatten() for weight in whole.parameters()])
actual = torch.cat(ray.get([front.weights.remote(), back.weights.remote()]))
right = ray.get(back.right_answers.remote(front.forward.remote("all", points), labels))
print(f"loss after {EPOCHS} epochs is as without a pipeline:", abs(pipelined - loss.item()) < 1e-4)
print("weights are as without a pipeline:", torch.allclose(actual, expected, atol=1e-4))
print("right answers:", "more than 9 of 10" if right > 0.9 * len(points) else f"{right} of {len(points)}")
