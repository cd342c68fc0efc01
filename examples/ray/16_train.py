"""Train a line on two workers that keep their models equal.

Shows a training function that runs on every worker, a model that is wrapped so that gradients are averaged, and
metrics that the workers report. (Ray itself keeps metrics without a checkpoint only with RAY_TRAIN_V2_ENABLED=0.)

Prints:

    epochs: 30
    loss below 0.01: True
"""

# needs: core, train
# engines: local, for workers that train together run at the same time

import ray
import ray.train.torch
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def train_line():
    rank = ray.train.get_context().get_world_rank()
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(rank))
    y = x @ torch.tensor([[2.0], [-1.0]]) + 0.5

    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(30):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ray.train.report({"loss": loss.item(), "epoch": epoch})


ray.init(num_cpus=4)
trainer = TorchTrainer(train_line, scaling_config=ScalingConfig(num_workers=2, use_gpu=False))
result = trainer.fit()
print("epochs:", result.metrics["epoch"] + 1)
print("loss below 0.01:", result.metrics["loss"] < 0.01)
