"""Choose the learning rate of a model that two workers train together.

Shows trials that each run a trainer, the trainer's reports as results of the trial, and the best model read from its
checkpoint.

Prints:

    3 trials, none failed
    best: learning rate 0.3
    its model is close to the line: True
"""

# needs: core, train, tune
# engines: local, for workers that train together run at the same time

import os
import tempfile

import ray
import ray.train.torch
import torch
from ray import tune
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback

SLOPES = torch.tensor([[2.0], [-1.0]])


def train_line(config):
    rank = ray.train.get_context().get_world_rank()
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(rank))
    y = x @ SLOPES + 0.5

    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(config["epochs"]):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
            checkpoint = Checkpoint.from_directory(folder)
        ray.train.report({"loss": loss.item()}, checkpoint=checkpoint)


def train_in_trial(config):
    """Run a trainer with the settings of the trial."""
    trainer = TorchTrainer(
        train_line,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=f"lr_{config['lr']}", storage_path=config["storage"], callbacks=[TuneReportCallback()]
        ),
    )
    trainer.fit()


ray.init(num_cpus=4)
with tempfile.TemporaryDirectory() as storage:
    tuner = tune.Tuner(
        train_in_trial,
        param_space={"lr": tune.grid_search([0.001, 0.01, 0.3]), "epochs": 20, "storage": storage},
        # A trial holds one CPU and its workers two.
        tune_config=tune.TuneConfig(metric="loss", mode="min", max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=storage, verbose=0),
    )
    results = tuner.fit()
    best = results.get_best_result()
    with Checkpoint(best.metrics["checkpoint_path"]).as_directory() as folder:
        model = torch.load(os.path.join(folder, "model.pt"))

print(f"{len(results)} trials,", "none failed" if not results.errors else results.errors)
print("best: learning rate", best.config["lr"])
print("its model is close to the line:", torch.allclose(model["weight"].T, SLOPES, atol=0.1))
