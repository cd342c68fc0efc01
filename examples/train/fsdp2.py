"""Sharded data parallelism (FSDP2): every worker keeps a part of each weight, and gathers a layer when it needs it.

`fully_shard` makes each parameter a `DTensor`. The optimizer holds states for the local part only. A checkpoint is
written by all workers, each its own files (`torch.distributed.checkpoint`), and all report: Skate puts the files
together. The second run below goes on from the first one's checkpoint. It could do so with another number of workers.

    python examples/train/fsdp2.py          # two processes on the CPU, gloo
    python examples/train/fsdp2.py --gpu    # two GPUs, nccl, bfloat16
"""

import tempfile

import torch
import torch.distributed.checkpoint as dcp
from tiny_lm import adamw, batch_of, next_token_loss, parser, storage, tiny_lm
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from skate import train
from skate.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer, get_device


def learn(config):
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    device = get_device()

    model = tiny_lm().to(device)
    everything = sum(each.numel() for each in model.parameters())
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if device.type == "cuda" else None)
    for layer in model:  # a group for each layer: it is gathered, used, and let go
        fully_shard(layer, mp_policy=precision)
    fully_shard(model, mp_policy=precision)
    here = sum(each.to_local().numel() for each in model.parameters())
    optimizer = adamw(model.parameters())

    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        first = restore(checkpoint, model, optimizer)
    for step in range(first, config["steps"]):
        tokens, following = (each.to(device) for each in batch_of(step, rank, world))
        loss = next_token_loss(model(tokens), following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        metrics = {"loss": loss, "step": step, "began": first, "here": here, "everything": everything}
        if step + 1 < config["steps"]:
            train.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        save(folder, model, optimizer, step)
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def save(folder, model, optimizer, step):
    """Write this worker's part; worker 0 also writes what the parts are."""
    weights, states = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": states, "step": step}, checkpoint_id=folder)


def restore(checkpoint, model, optimizer):
    """Read this worker's part of a checkpoint, however many workers wrote it; return the next step."""
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states, "step": 0}
    with checkpoint.as_directory() as folder:
        dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)
    return state["step"] + 1


def main():
    options = parser(__doc__).parse_args()
    place = storage(options)
    for steps in (options.steps // 2, options.steps):  # a run with the name of an earlier one goes on from it
        result = TorchTrainer(
            learn,
            train_loop_config={"steps": steps},
            scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
            run_config=RunConfig(
                name="fsdp2", storage_path=place, checkpoint_config=CheckpointConfig(num_to_keep=2)
            ),
        ).fit()
        last = result.metrics
        print(f"steps {last['began']} to {last['step']}: loss {last['loss']:.2f}")
    parts = result.rank_metrics().groupby("rank")["here"].last()
    print(f"parameters: {last['everything']}, of which the workers hold {parts.tolist()}")
    print(f"loss: {result.metrics_dataframe['loss'].iloc[0]:.2f} at first, {last['loss']:.2f} at last")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
