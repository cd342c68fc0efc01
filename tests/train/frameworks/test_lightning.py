"""Training with Lightning, in a training function of TorchTrainer."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from skate import train
from skate.train import CheckpointUploadMode, Result, RunConfig
from skate.train.collective import broadcast_from_rank_zero
from skate.train.lightning import (
    RayDDPStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    prepare_trainer,
)
from skate.train.torch import TorchTrainer

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine", "stores_were_used")]

ROWS, BATCH = 64, 8
QUIET = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "logger": False,
}


class Line(pl.LightningModule):
    """Learns three numbers, and remembers which rows it has seen."""

    def __init__(self, fails_in: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.fails_in = fails_in
        self.seen: list[int] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        number, x = batch
        self.seen += number.tolist()
        loss = (self.layer(x) - x @ torch.tensor([[1.0], [2.0], [3.0]])).pow(2).mean()
        self.log("loss", loss)
        return loss

    def on_train_epoch_start(self) -> None:
        if self.current_epoch == self.fails_in:
            raise ValueError("the end is near")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def rows() -> DataLoader[Any]:
    x = torch.randn(ROWS, 3, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(torch.arange(ROWS), x), batch_size=BATCH)


def trainer(epochs: int, mode: CheckpointUploadMode | None = None) -> Any:
    return prepare_trainer(
        pl.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            devices="auto",
            strategy=RayDDPStrategy(),
            plugins=[RayLightningEnvironment()],
            callbacks=[RayTrainReportCallback(checkpoint_upload_mode=mode)],
            **QUIET,
        )
    )


@pytest.fixture(scope="session")
def stores_were_used() -> None:
    """Open a store of torch's, which keeps a pipe for all of them for good: no test has leaked it."""
    dist.TCPStore("127.0.0.1", 0, 1, is_master=True)


@pytest.fixture
def fit(fit_with: Callable[..., Result]) -> Callable[..., Result]:
    return partial(fit_with, TorchTrainer)


def test_workers_fit_one_module_each_on_its_rows(fit: Callable[..., Result]) -> None:
    def function() -> dict[str, Any]:
        mine, module = trainer(2), Line()
        mine.fit(module, rows())
        weights = module.layer.weight.tolist()
        assert weights == broadcast_from_rank_zero(weights)
        epoch = set(module.seen[: ROWS // 2])
        assert len(epoch) == ROWS // 2
        others = broadcast_from_rank_zero(epoch)
        assert train.get_context().get_world_rank() == 0 or not epoch & others
        return {"seen": module.seen, "world": mine.world_size, "weights": weights}

    result = fit(function)
    found = result.return_value
    assert found["world"] == 2
    assert len(found["seen"]) == ROWS  # half of them in each epoch
    assert result.metrics["epoch"] == 1
    assert result.metrics["step"] == 2 * ROWS // 2 // BATCH
    losses = list(result.metrics_dataframe["loss"])
    assert losses[1] < losses[0]
    saved = torch.load(
        Path(result.checkpoint.path, RayTrainReportCallback.CHECKPOINT_NAME), weights_only=True
    )
    assert saved["state_dict"]["layer.weight"].tolist() == found["weights"]


def test_a_module_goes_on_from_the_last_epoch_when_a_worker_fails(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig]
) -> None:
    def function() -> int:
        checkpoint = train.get_checkpoint()
        module = Line(fails_in=None if checkpoint else 2)
        mine = trainer(3, CheckpointUploadMode.ASYNC)
        if checkpoint is None:
            mine.fit(module, rows())
        else:
            with checkpoint.as_directory() as folder:
                path = str(Path(folder, RayTrainReportCallback.CHECKPOINT_NAME))
                mine.fit(module, rows(), ckpt_path=path)
        return len(module.seen)

    result = fit(function, run=run_config(failures=1))
    assert result.return_value == ROWS // 2  # one epoch, of half of the rows
    assert result.metrics["epoch"] == 2
    assert result.metrics["step"] == 3 * ROWS // 2 // BATCH


@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")  # Lightning's use of torch
def test_without_workers_a_module_trains_in_this_process(fit: Callable[..., Result]) -> None:
    def function() -> list[int]:
        module = Line()
        trainer(1).fit(module, rows())
        dist.destroy_process_group()  # which Lightning has made, of one
        return module.seen

    assert sorted(fit(function, workers=0).return_value) == list(range(ROWS))


def test_a_trainer_that_would_start_processes_by_itself_is_refused() -> None:
    with pytest.raises(RuntimeError, match="give it strategy=RayDDPStrategy"):
        prepare_trainer(pl.Trainer(accelerator="cpu", **QUIET))
    with pytest.raises(RuntimeError, match=r"give it plugins=\[RayLightningEnvironment\(\)\]"):
        prepare_trainer(pl.Trainer(accelerator="cpu", strategy=RayDDPStrategy(), **QUIET))


def test_sharding_where_there_is_no_gpu_is_refused_by_torch(fit: Callable[..., Result]) -> None:
    def function() -> None:
        environment = RayLightningEnvironment()
        pl.Trainer(accelerator="cpu", strategy=RayFSDPStrategy(), plugins=[environment], **QUIET).fit(
            Line(), rows()
        )

    with pytest.raises(train.WorkerGroupError, match="FSDP needs a non-CPU accelerator"):
        fit(function)


def test_the_example_learns_and_goes_on_where_it_was(run_example: Callable[..., str], tmp_path: Path) -> None:
    first = run_example("lightning_module.py", "--storage", str(tmp_path), "--epochs", "1", "--steps", "10")
    again = run_example("lightning_module.py", "--storage", str(tmp_path), "--epochs", "2", "--steps", "10")
    losses = [
        float(each) for each in re.findall(r"^epoch \d: loss (\S+)$", first + again, flags=re.MULTILINE)
    ]
    assert losses[-1] < losses[0] < 5
    assert re.findall(r"^epoch (\d)", again, flags=re.MULTILINE)[-1] == "1"
