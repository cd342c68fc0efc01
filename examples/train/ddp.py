"""Data parallelism (DDP): every worker has the whole model, and its own part of each batch.

`prepare_model` wraps the model, after which `backward` averages the gradients of all workers, so that they take the
same step. This is the strategy to begin with: use another when the model, its gradients and the optimizer's state do
not fit on one device.

    python examples/train/ddp.py            # two processes on the CPU, gloo
    python examples/train/ddp.py --gpu      # two GPUs, nccl, bfloat16
"""

import tempfile
from pathlib import Path

import torch
from tiny_lm import adamw, batch_of, next_token_loss, parser, storage, tiny_lm

from skate import train
from skate.train import Checkpoint, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer, get_device, prepare_model


def learn(config):
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    device = get_device()

    model = prepare_model(tiny_lm())
    optimizer = adamw(model.parameters())
    for step in range(config["steps"]):
        tokens, following = (each.to(device) for each in batch_of(step, rank, world))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = next_token_loss(model(tokens), following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        train.report({"loss": loss, "step": step})

    # All workers have the same weights: one of them keeps them.
    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            whole = model.module if world > 1 else model
            torch.save(whole.state_dict(), Path(folder, "model.pt"))
            train.report({"loss": loss, "step": step}, checkpoint=Checkpoint.from_directory(folder))


def main():
    options = parser(__doc__).parse_args()
    result = TorchTrainer(
        learn,
        train_loop_config={"steps": options.steps},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="ddp", storage_path=storage(options)),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    print(f"loss: {losses.iloc[0]:.2f} at first, {losses.iloc[-1]:.2f} after {options.steps} steps")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
