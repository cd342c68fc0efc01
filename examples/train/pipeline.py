"""Pipeline parallelism: every worker has some of the layers, and hands what they give to the next worker.

A batch is cut into microbatches, so that the workers have something to do at the same time; the schedule 1F1B lets
each begin with backward passes as soon as it can, which needs less memory than GPipe (`ScheduleGPipe`). Only
neighbours talk to each other, and only about activations: slow links between machines will do.

    python examples/train/pipeline.py           # two processes on the CPU, gloo
    python examples/train/pipeline.py --gpu     # two GPUs, nccl
"""

import tempfile
from collections import OrderedDict
from pathlib import Path

import torch
from tiny_lm import adamw, batch_of, next_token_loss, parser, storage, tiny_lm
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from skate import train
from skate.train import Checkpoint, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer, get_device

MICROBATCHES = 4


def learn(config):
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    device = get_device()

    # This worker's layers, under the names that they have in the whole model.
    layers = list(tiny_lm().named_children())
    mine = layers[len(layers) * rank // world : len(layers) * (rank + 1) // world]
    model = torch.nn.Sequential(OrderedDict(mine)).to(device)
    optimizer = adamw(model.parameters())
    stage = PipelineStage(model, rank, world, device)
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=next_token_loss)

    for step in range(config["steps"]):
        tokens, following = (each.to(device) for each in batch_of(step))
        losses = []
        inputs = (tokens,) if stage.is_first else ()
        schedule.step(*inputs, target=following if stage.is_last else None, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        metrics = {"step": step, "layers": [name for name, _ in mine]}
        if stage.is_last:  # the others do not know the loss
            metrics["loss"] = torch.stack(losses).mean()
        if step + 1 < config["steps"]:
            train.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), Path(folder, f"stage_{rank}.pt"))
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main():
    options = parser(__doc__).parse_args()
    result = TorchTrainer(
        learn,
        train_loop_config={"steps": options.steps},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="pipeline", storage_path=storage(options)),
    ).fit()
    reports = result.rank_metrics().groupby("rank")
    print(f"layers of the workers: {reports['layers'].last().tolist()}")
    losses = reports.get_group(options.workers - 1)["loss"]
    print(f"loss: {losses.iloc[0]:.2f} at first, {losses.iloc[-1]:.2f} at last")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
