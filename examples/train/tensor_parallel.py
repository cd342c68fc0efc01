"""Tensor parallelism: every worker computes a part of each layer, some heads and some columns of its matrices.

A device mesh names two dimensions: along "tensor" workers share each layer, along "data" there are copies of the
model that see other parts of the batch, and that `fully_shard` shards on top. With two workers there is one copy;
four have two. The workers of a layer talk to each other twice in each block, so they should be on one machine, with
fast links.

    python examples/train/tensor_parallel.py            # two processes on the CPU, gloo
    python examples/train/tensor_parallel.py --gpu      # two GPUs, nccl
"""

import tempfile

import torch.distributed.checkpoint as dcp
from tiny_lm import adamw, batch_of, next_token_loss, parser, storage, tiny_lm
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

from skate import train
from skate.train import Checkpoint, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer, get_device

SHARE_A_LAYER = 2

# Columns first, rows after: what lies between needs no communication.
OF_A_BLOCK = {
    "query": ColwiseParallel(),
    "key": ColwiseParallel(),
    "value": ColwiseParallel(),
    "attended": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}
OF_THE_HEAD = {"scores": ColwiseParallel(use_local_output=False)}  # each has the scores of some bytes


def learn(config):
    world = train.get_context().get_world_size()
    device = get_device()
    mesh = init_device_mesh(
        device.type, (world // SHARE_A_LAYER, SHARE_A_LAYER), mesh_dim_names=("data", "tensor")
    )

    model = tiny_lm().to(device)
    _, *blocks, head = model
    for block in blocks:
        parallelize_module(block, mesh["tensor"], OF_A_BLOCK)
    parallelize_module(head, mesh["tensor"], OF_THE_HEAD)
    fully_shard(model, mesh=mesh["data"])
    here = blocks[0].query.weight.to_local().shape
    optimizer = adamw(model.parameters())

    # Workers that share a layer see the same rows.
    part, parts = mesh["data"].get_local_rank(), mesh["data"].size()
    for step in range(config["steps"]):
        tokens, following = (each.to(device) for each in batch_of(step, part, parts))
        with loss_parallel():  # no worker ever has all scores
            loss = next_token_loss(model(tokens), following)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        metrics = {"loss": loss.full_tensor(), "step": step, "here": list(here)}
        if step + 1 < config["steps"]:
            train.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def main():
    options = parser(__doc__, multiple_of=SHARE_A_LAYER).parse_args()
    result = TorchTrainer(
        learn,
        train_loop_config={"steps": options.steps},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="tensor_parallel", storage_path=storage(options)),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    print(f"a matrix of 64 x 64 is here {' x '.join(map(str, result.metrics['here']))}")
    print(f"loss: {losses.iloc[0]:.2f} at first, {losses.iloc[-1]:.2f} at last")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
