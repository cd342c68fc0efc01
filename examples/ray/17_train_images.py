"""Train a small convolutional network on drawn images, shared between two workers, and load its last checkpoint.

Shows a data loader that gives each worker its own part, epochs that are shuffled anew, a checkpoint that is reported
with the metrics, a run with a name and a place of its own, and what is left when the run has ended.

Prints:

    2 workers with 4 batches of 32 each, of 256 images
    the loss fell: True
    the checkpoint knows bars from crosses: 64 of 64
    the run lies in striped_run
"""

# needs: core, train
# engines: local, for workers that train together run at the same time

import os
import tempfile

import ray.train
import ray.train.torch
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.nn import CrossEntropyLoss
from torch.optim import Adam
from torch.utils.data import DataLoader, TensorDataset


def draw(count, seed):
    """Return images of 8 by 8 points, and what each shows: 0 lying bars, 1 standing bars, 2 a cross."""
    randomness = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 3
    images = 0.2 * torch.randn(count, 1, 8, 8, generator=randomness)
    places = torch.randint(1, 7, (count, 2), generator=randomness)
    for image, label, (row, column) in zip(images, labels, places, strict=True):
        if label != 1:
            image[0, row] += 1
        if label != 0:
            image[0, :, column] += 1
    return TensorDataset(images, labels)


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, kernel_size=3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, kernel_size=3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 8 * 8, 3),
    )


def train_func(config):
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(make_model())
    criterion = CrossEntropyLoss()
    optimizer = Adam(model.parameters(), lr=config["lr"])
    loader = DataLoader(draw(256, seed=1), batch_size=config["batch_size"], shuffle=True)
    loader = ray.train.torch.prepare_data_loader(loader)

    for epoch in range(config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            loader.sampler.set_epoch(epoch)

        total = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()

        metrics = {"loss": total / len(loader), "batches": len(loader)}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
                checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


with tempfile.TemporaryDirectory() as storage:
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"lr": 0.01, "batch_size": 32, "epochs": 6},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=storage, name="striped_run"),
    )
    result = trainer.fit()

    model = make_model()
    with result.checkpoint.as_directory() as folder:
        model.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
    images, labels = draw(64, seed=2).tensors
    right = (model(images).argmax(1) == labels).sum().item()
    first, last = result.metrics_dataframe["loss"].iloc[[0, -1]]
    print(f"2 workers with {result.metrics['batches']} batches of 32 each, of 256 images")
    print("the loss fell:", last < first / 2)
    print(f"the checkpoint knows bars from crosses: {right} of {len(images)}")
    print("the run lies in", os.path.basename(result.path))
