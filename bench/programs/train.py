"""Training: what a run costs beside its steps, and what a step costs."""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from typing import Any

import meter
import torch

job = meter.Job()
ray: Any = job.load()
train: Any = importlib.import_module(f"{job.system}.train")
torch_train: Any = importlib.import_module(f"{job.system}.train.torch")

STEPS = 50
EVERY = 10  # steps between checkpoints


def learn(config: dict[str, Any]) -> None:
    """Take some tiny steps together with the other worker, and keep the model now and then."""
    module = importlib.import_module(config["train"])
    torch_module = importlib.import_module(config["train"] + ".torch")
    torch.manual_seed(0)
    model = torch_module.prepare_model(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(16, 32)
    begun = time.perf_counter()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % EVERY == EVERY - 1:
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if module.get_context().get_world_rank() == 0:
                    torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
                    checkpoint = module.Checkpoint.from_directory(folder)
                metrics = {"loss": loss.item(), "steps": (step + 1) / (time.perf_counter() - begun)}
                module.report(metrics, checkpoint=checkpoint)


def fit() -> Any:
    """Run it with two workers."""
    with tempfile.TemporaryDirectory() as folder:
        return torch_train.TorchTrainer(
            learn,
            train_loop_config={"train": train.__name__},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(storage_path=folder, name="bench"),
        ).fit()


def train_fit() -> float:
    """Return the seconds of a whole run, the first of its process: nobody trains fifty steps twice."""
    return job.once(lambda: None, fit)


job.run_on(ray, train_fit)
