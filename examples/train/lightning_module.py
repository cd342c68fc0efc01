"""Lightning: a module stays as it is, and a trainer of Lightning's trains it on several workers.

Three things tell Lightning that the workers are there already: a strategy, an environment, and a callback that reports
each epoch, with a checkpoint. A run that is repeated with the same storage goes on from it.

    python examples/train/lightning_module.py            # two processes on the CPU, gloo
    python examples/train/lightning_module.py --gpu      # two GPUs, nccl, bfloat16
"""

from pathlib import Path

import lightning.pytorch as pl
import torch
from tiny_lm import adamw, batch_of, next_token_loss, parser, storage, tiny_lm
from torch.utils.data import DataLoader, TensorDataset

from skate import train
from skate.train import RunConfig, ScalingConfig
from skate.train.lightning import (
    RayDDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from skate.train.torch import TorchTrainer


class Decoder(pl.LightningModule):
    """The language model, and how it learns."""

    def __init__(self):
        super().__init__()
        self.model = tiny_lm()

    def training_step(self, batch, index):
        tokens, following = batch
        loss = next_token_loss(self.model(tokens), following)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return adamw(self.parameters())


def learn(config):
    batches = [batch_of(step) for step in range(config["steps"])]
    rows = TensorDataset(*(torch.cat(each) for each in zip(*batches, strict=True)))
    trainer = pl.Trainer(
        max_epochs=config["epochs"],
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        accelerator="gpu" if config["gpu"] else "cpu",
        precision="bf16-mixed" if config["gpu"] else "32-true",
        enable_checkpointing=False,  # the callback does it
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    loader = DataLoader(rows, batch_size=12, shuffle=True)
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        prepare_trainer(trainer).fit(Decoder(), loader)
        return
    with checkpoint.as_directory() as folder:
        path = str(Path(folder, RayTrainReportCallback.CHECKPOINT_NAME))
        prepare_trainer(trainer).fit(Decoder(), loader, ckpt_path=path)


def main():
    options = parser(__doc__)
    options.add_argument("--epochs", type=int, default=2)
    options = options.parse_args()
    result = TorchTrainer(
        learn,
        train_loop_config={"steps": options.steps, "epochs": options.epochs, "gpu": options.gpu},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(name="lightning", storage_path=storage(options)),
    ).fit()
    for epoch, loss in zip(result.metrics_dataframe["epoch"], result.metrics_dataframe["loss"], strict=True):
        print(f"epoch {epoch}: loss {loss:.2f}")
    print(f"kept in {result.checkpoint.path}")


if __name__ == "__main__":
    main()
