"""JAX: the workers are processes of one program, whose arrays are spread over the devices of all of them.

`JaxTrainer` connects the processes. The batch is sharded over the workers and the weights are the same everywhere, so
that `jax.jit` adds up what the workers compute: gradients are of the whole batch.

    python examples/train/jax_trainer.py            # two processes on the CPU, gloo
    python examples/train/jax_trainer.py --gpu      # two GPUs, nccl
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from skate import train
from skate.train import Checkpoint, RunConfig, ScalingConfig
from skate.train.v2.jax import JaxTrainer


def learn(config):
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Axes

    mesh = jax.make_mesh((jax.device_count(),), ("workers",))
    spread, everywhere = NamedSharding(mesh, Axes("workers")), NamedSharding(mesh, Axes())

    def loss_of(weights, x, y):
        hidden = jnp.tanh(x @ weights["in"])
        return jnp.mean((hidden @ weights["out"] - y) ** 2)

    @jax.jit
    def step(weights, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
        return jax.tree.map(lambda weight, gradient: weight - 0.1 * gradient, weights, gradients), loss

    rank = train.get_context().get_world_rank()
    first, second = jax.random.split(jax.random.key(0))
    weights = {"in": jax.random.normal(first, (4, 16)) / 2, "out": jax.random.normal(second, (16,)) / 4}
    weights = jax.device_put(weights, everywhere)
    rows = np.random.default_rng(rank)  # each worker has its own
    for number in range(config["steps"]):
        x = rows.normal(size=(32, 4)).astype("float32")
        y = np.sin(x.sum(axis=1))
        batch = (jax.make_array_from_process_local_data(spread, each) for each in (x, y))
        weights, loss = step(weights, *batch)
        train.report({"loss": float(loss), "step": number})

    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            np.savez(
                Path(folder, "weights.npz"), **{name: np.asarray(each) for name, each in weights.items()}
            )
            train.report({"loss": float(loss), "step": number}, checkpoint=Checkpoint.from_directory(folder))


def main():
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--gpu", action="store_true", help="one GPU for each worker")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--steps", type=int, default=100)
    options = options.parse_args()
    result = JaxTrainer(
        learn,
        train_loop_config={"steps": options.steps},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="jax", storage_path=tempfile.mkdtemp()),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    print(f"loss: {losses.iloc[0]:.2f} at first, {losses.iloc[-1]:.2f} after {options.steps} steps")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
