"""Hugging Face Accelerate: `Accelerator()` inside of the training function finds the workers, and does the rest.

Skate has made the workers a process group and has told each its rank and its device, as `accelerate launch` would;
what is written for Accelerate runs as it is. How the model is trained is a matter of Accelerate's: DDP, as here, FSDP
or DeepSpeed with one of its plugins.

    python examples/train/hf_accelerate.py          # two processes on the CPU, gloo
    python examples/train/hf_accelerate.py --gpu    # two GPUs, nccl, bfloat16
"""

import tempfile

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from tiny_lm import BATCH, adamw, batch_of, next_token_loss, parser, storage, tiny_lm
from torch.utils.data import DataLoader, TensorDataset

from skate import train
from skate.train import Checkpoint, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer


def learn(config):
    accelerator = Accelerator(
        mixed_precision="bf16" if config["gpu"] else "no",
        dataloader_config=DataLoaderConfiguration(split_batches=True),
    )
    rows = [
        torch.cat(each) for each in zip(*(batch_of(step) for step in range(config["steps"])), strict=True)
    ]
    loader = DataLoader(TensorDataset(*rows), batch_size=BATCH)
    model = tiny_lm()
    model, optimizer, loader = accelerator.prepare(model, adamw(model.parameters()), loader)

    for step, (tokens, following) in enumerate(loader):
        loss = next_token_loss(model(tokens), following)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        mean = accelerator.reduce(loss.detach(), "mean")
        metrics = {"loss": mean, "step": step, "processes": accelerator.num_processes}
        if step + 1 < config["steps"]:
            train.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)  # each worker writes its part: weights, optimizer, random numbers
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main():
    options = parser(__doc__).parse_args()
    result = TorchTrainer(
        learn,
        train_loop_config={"steps": options.steps, "gpu": options.gpu},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="accelerate", storage_path=storage(options)),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    print(f"Accelerate saw {result.metrics['processes']} processes")
    print(f"loss: {losses.iloc[0]:.2f} at first, {losses.iloc[-1]:.2f} at last")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
