"""Stream a dataset into training: while two workers learn, the next batches are being made.

Shows datasets that are split between workers, batches that a custom function collates, metrics from a second
dataset, checkpoints of which the last two are kept, and the best of them.

Prints:

    workers saw all 400 rows in each epoch: True
    right on rows never seen: more than 9 of 10
    checkpoints kept: 2
"""

# needs: core, data, train
# engines: local, for workers that train together run at the same time

import os
import tempfile

import numpy as np
import ray.data
import ray.train
import ray.train.torch
import torch
from ray.train import Checkpoint, CheckpointConfig, DataConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def make_rows(count, seed):
    """Return fruit as rows: its weight, its sweetness, and whether it is a plum."""
    rng = np.random.default_rng(seed)
    plums = rng.integers(0, 2, count)
    return [
        {"grams": 120 - 90 * plum + 15 * a, "sugar": 8 + 6 * plum + b, "plum": int(plum)}
        for plum, a, b in zip(plums, rng.normal(size=count), rng.normal(size=count), strict=True)
    ]


def collate(batch):
    features = np.column_stack([batch["grams"] / 100, batch["sugar"] / 10])
    return torch.tensor(features, dtype=torch.float32), torch.tensor(batch["plum"])


def train_func(config):
    torch.manual_seed(0)
    device = ray.train.torch.get_device()
    model = ray.train.torch.prepare_model(torch.nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    train_rows = ray.train.get_dataset_shard("train")
    test_rows = ray.train.get_dataset_shard("test")

    for epoch in range(config["epochs"]):
        seen = 0
        for features, labels in train_rows.iter_torch_batches(
            batch_size=config["batch_size"], collate_fn=collate
        ):
            loss = torch.nn.functional.cross_entropy(model(features.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += len(labels)

        right = asked = 0
        with torch.no_grad():
            for features, labels in test_rows.iter_torch_batches(batch_size=64, collate_fn=collate):
                right += (model(features.to(device)).argmax(1) == labels.to(device)).sum().item()
                asked += len(labels)

        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
            ray.train.report(
                {"epoch": epoch, "seen": seen, "accuracy": right / asked},
                checkpoint=Checkpoint.from_directory(folder),
            )


with tempfile.TemporaryDirectory() as storage:
    trainer = TorchTrainer(
        train_loop_per_worker=train_func,
        train_loop_config={"lr": 0.1, "batch_size": 20, "epochs": 4},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            name="plums", storage_path=storage, checkpoint_config=CheckpointConfig(num_to_keep=2)
        ),
        datasets={
            "train": ray.data.from_items(make_rows(400, seed=1)),
            "test": ray.data.from_items(make_rows(100, seed=2)),
        },
        dataset_config=DataConfig(datasets_to_split=["train"]),
    )
    result = trainer.fit()

accuracy = result.metrics["accuracy"]
print("workers saw all 400 rows in each epoch:", 2 * result.metrics["seen"] == 400)
print("right on rows never seen:", "more than 9 of 10" if accuracy > 0.9 else accuracy)
print("checkpoints kept:", len(result.best_checkpoints))
