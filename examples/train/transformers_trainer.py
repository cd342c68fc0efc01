"""The `Trainer` of transformers: what you have stays as it is, and runs on several workers with data that streams in.

`prepare_trainer` lets it take batches of a Skate dataset, and `RayTrainReportCallback` reports what it logs and keeps
what it saves, as a checkpoint that `from_pretrained` reads. The model is a GPT-2 of two small layers, with random
weights.

    python examples/train/transformers_trainer.py            # two processes on the CPU, gloo
    python examples/train/transformers_trainer.py --gpu      # two GPUs, nccl, bfloat16
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from tiny_lm import CONTEXT, TEXT, VOCABULARY, parser, storage
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import skate
from skate import train
from skate.train import RunConfig, ScalingConfig
from skate.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from skate.train.torch import TorchTrainer


def with_labels(batch):
    """Make what the model takes out of a batch: it moves the labels by one itself."""
    tokens = torch.as_tensor(batch["tokens"]).long()
    return {"input_ids": tokens, "labels": tokens}


def learn(config):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=4)
    )
    shard = train.get_dataset_shard("train")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            max_steps=config["steps"],  # a stream has no length
            learning_rate=1e-2,
            logging_steps=config["steps"] // 4,
            save_steps=config["steps"] // 2,
            bf16=config["gpu"],
            use_cpu=not config["gpu"],
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=shard.iter_torch_batches(batch_size=12, collate_fn=with_labels),
        callbacks=[RayTrainReportCallback()],
    )
    prepare_trainer(trainer).train()


def main():
    options = parser(__doc__).parse_args()
    data = np.frombuffer(TEXT.encode(), dtype=np.uint8)
    rows = [
        {"tokens": data[start : start + CONTEXT]} for start in range(0, len(data) - CONTEXT, CONTEXT // 8)
    ]
    result = TorchTrainer(
        learn,
        train_loop_config={"steps": options.steps, "gpu": options.gpu},
        datasets={"train": skate.data.from_items(rows).random_shuffle(seed=0)},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="transformers", storage_path=storage(options)),
    ).fit()
    losses = result.metrics_dataframe["loss"]
    print(f"loss: {losses.iloc[0]:.2f} at first, {losses.iloc[-1]:.2f} after {options.steps} steps")
    print(f"kept in {result.checkpoint.path}")

    folder = Path(result.checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME)
    again = GPT2LMHeadModel.from_pretrained(folder)
    print(f"read again: {sum(each.numel() for each in again.parameters())} weights")


if __name__ == "__main__":
    main()
