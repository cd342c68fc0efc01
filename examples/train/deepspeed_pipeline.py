"""DeepSpeed's `PipelineModule`: the layers are cut into stages, one for each worker, and ZeRO-1 may be put on top.

The model is given as a list of layers, of which each worker keeps its own. `train_batch` takes microbatches from an
iterator and passes them through all stages; it returns the loss on every worker. With more workers than stages there
are several pipelines, each with its part of the batch, and `--zero` shards the optimizer's states over them.

    python examples/train/deepspeed_pipeline.py --zero          # two processes on the CPU, gloo
    python examples/train/deepspeed_pipeline.py --zero --gpu    # two GPUs, nccl
"""

import tempfile

import deepspeed
from deepspeed.pipe import PipelineModule
from tiny_lm import BATCH, LEARNING_RATE, batch_of, next_token_loss, parser, storage, tiny_lm

from skate import train
from skate.train import Checkpoint, CheckpointConfig, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer

STAGES = 2
MICROBATCHES = 4


def learn(config):
    # On CPUs DeepSpeed would first compile, for a minute, an operation that only inference uses.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()  # it finds the process group that Skate has made

    # Each worker keeps its part of the list. `LayerSpec(Block)` instead of a layer is built where it is needed only.
    model = PipelineModule(
        list(tiny_lm()), num_stages=STAGES, loss_fn=next_token_loss, partition_method="uniform"
    )
    engine, _, _, _ = deepspeed.initialize(model=model, config=config["deepspeed_config"])
    first = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            _, kept = engine.load_checkpoint(folder)
        first = kept["step"] + 1

    here = sum(each.numel() for each in model.parameters())
    pipeline, pipelines = engine.mpu.get_data_parallel_rank(), engine.mpu.get_data_parallel_world_size()
    for step in range(first, config["steps"]):
        loss = engine.train_batch(
            batch_of(step, pipeline * MICROBATCHES + number, pipelines * MICROBATCHES)
            for number in range(MICROBATCHES)
        )
        metrics = {"loss": loss, "step": step, "began": first, "stage": engine.stage_id, "here": here}
        if step + 1 < config["steps"]:
            train.report(metrics)
    with tempfile.TemporaryDirectory() as folder:
        engine.save_checkpoint(folder, client_state={"step": step})
        train.report(metrics, checkpoint=Checkpoint.from_directory(folder))


def deepspeed_config(options):
    return {
        "train_micro_batch_size_per_gpu": BATCH // (options.workers // STAGES * MICROBATCHES),
        "gradient_accumulation_steps": MICROBATCHES,
        "gradient_clipping": 0.0,  # like the other examples: DeepSpeed clips to 1.0 if it is not told
        "zero_optimization": {"stage": 1 if options.zero else 0},
        # torch's optimizer, instead of one that is compiled at the first start.
        "optimizer": {"type": "AdamW", "params": {"lr": LEARNING_RATE, "torch_adam": True}},
    }


def main():
    options = parser(__doc__, multiple_of=STAGES)
    options.add_argument("--zero", action="store_true", help="with ZeRO-1")
    options = options.parse_args()
    place = storage(options)
    for steps in (options.steps // 2, options.steps):  # a run with the name of an earlier one goes on from it
        result = TorchTrainer(
            learn,
            train_loop_config={"steps": steps, "deepspeed_config": deepspeed_config(options)},
            scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
            run_config=RunConfig(
                name="deepspeed_pipeline",
                storage_path=place,
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        ).fit()
        last = result.metrics
        print(f"steps {last['began']} to {last['step']}: loss {last['loss']:.2f}")
    parts = result.rank_metrics().groupby("stage")["here"].last()
    print(f"parameters of the stages: {parts.tolist()}")
    print(f"loss: {result.metrics_dataframe['loss'].iloc[0]:.2f} at first, {last['loss']:.2f} at last")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
