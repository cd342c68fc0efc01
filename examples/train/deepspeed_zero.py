"""DeepSpeed ZeRO: every worker keeps a part of the optimizer's states; in stage 2 of gradients, in 3 of weights too.

`deepspeed.initialize` inside of the training function finds the process group that Skate has made. All workers save
their part of a checkpoint and report it: Skate puts the files together, and the second run below goes on from there.
`--offload` keeps optimizer states, and with stage 3 weights, in main memory instead of the GPU's.

    python examples/train/deepspeed_zero.py --stage 3               # two processes on the CPU, gloo
    python examples/train/deepspeed_zero.py --stage 3 --offload --gpu   # two GPUs, nccl, bfloat16
"""

import tempfile

import deepspeed
from tiny_lm import BATCH, LEARNING_RATE, batch_of, next_token_loss, parser, storage, tiny_lm

from skate import train
from skate.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer, get_device


def learn(config):
    # On CPUs DeepSpeed would first compile, for a minute, an operation that only inference uses.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    device = get_device()

    plain = tiny_lm()
    model, optimizer, _, _ = deepspeed.initialize(
        model=plain, model_parameters=plain.parameters(), config=config["deepspeed_config"]
    )
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            _, kept = model.load_checkpoint(folder)
        first = kept["step"] + 1

    for step in range(first, config["steps"]):
        tokens, following = (each.to(device) for each in batch_of(step, rank, world))
        loss = next_token_loss(model(tokens), following)
        model.backward(loss)
        model.step()
        here = sum(each["exp_avg"].numel() for each in optimizer.optimizer.state.values())
        metrics = {"loss": loss, "step": step, "began": first, "here": here}
        if step + 1 < config["steps"]:
            train.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        model.save_checkpoint(folder, client_state={"step": step})
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def deepspeed_config(stage, options):
    zero = {"stage": stage}
    if options.offload:
        zero["offload_optimizer"] = {"device": "cpu"}
        if stage == 3:
            zero["offload_param"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": BATCH // options.workers,
        "zero_optimization": zero,
        "bf16": {"enabled": options.gpu},
        "gradient_clipping": 0.0,  # like the other examples: DeepSpeed clips to 1.0 if it is not told
        # torch's optimizer, instead of one that is compiled at the first start.
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE, "torch_adam": True}},
        "zero_force_ds_cpu_optimizer": False,
    }


def run(stage, options, place):
    for steps in (options.steps // 2, options.steps):  # a run with the name of an earlier one goes on from it
        result = TorchTrainer(
            learn,
            train_loop_config={"steps": steps, "deepspeed_config": deepspeed_config(stage, options)},
            scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
            run_config=RunConfig(
                name=f"zero{stage}",
                storage_path=place,
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        ).fit()
        last = result.metrics
        print(f"stage {stage}, steps {last['began']} to {last['step']}: loss {last['loss']:.2f}")
    parts = result.rank_metrics().groupby("rank")["here"].last()
    everything = sum(each.numel() for each in tiny_lm().parameters())
    print(f"parameters: {everything}, of which the workers have optimizer states for {parts.tolist()}")
    print(f"loss: {result.metrics_dataframe['loss'].iloc[0]:.2f} at first, {last['loss']:.2f} at last")
    print(f"kept in {result.checkpoint.path}")


def main():
    options = parser(__doc__)
    options.add_argument(
        "--stage", type=int, choices=(1, 2, 3), nargs="+", default=[3], help="several run one after the other"
    )
    options.add_argument("--offload", action="store_true", help="keep states in main memory")
    options = options.parse_args()
    place = storage(options)
    for stage in options.stage:
        run(stage, options, place)


if __name__ == "__main__":
    main()
