"""Training with torch: shared gradients, sharded data, devices."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from skate import train  # noqa: E402
from skate.train import Checkpoint, Result, RunConfig  # noqa: E402
from skate.train.torch import (  # noqa: E402
    TorchConfig,
    TorchTrainer,
    enable_reproducibility,
    get_device,
    prepare_data_loader,
    prepare_model,
)
from tests.train.processes import die  # noqa: E402

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine")]


@pytest.fixture
def fit(fit_with: Callable[..., Result]) -> Callable[..., Result]:
    return partial(fit_with, TorchTrainer)


def weights_of(model: torch.nn.Module) -> list[float]:
    return [number for each in model.parameters() for number in each.detach().flatten().tolist()]


def learn(model: torch.nn.Module, seed: int, steps: int = 5) -> None:
    """Take some steps on random numbers of a seed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    numbers = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=numbers)).pow(2).mean().backward()
        optimizer.step()


def test_workers_are_a_process_group_whose_models_stay_equal(fit: Callable[..., Result]) -> None:
    def function() -> None:
        torch.manual_seed(train.get_context().get_world_rank())
        model = prepare_model(torch.nn.Linear(3, 1))
        learn(model, seed=train.get_context().get_world_rank())
        train.report(
            {
                "weights": weights_of(model),
                "kind": type(model).__name__,
                "rank": dist.get_rank(),
                "backend": dist.get_backend(),
                "device": str(get_device()),
                "host": os.environ["MASTER_ADDR"],
            }
        )

    rows = fit(function).rank_metrics().to_dict("records")
    assert [row["rank"] for row in sorted(rows, key=lambda row: row["rank"])] == [0, 1]
    assert rows[0]["weights"] == rows[1]["weights"]
    assert {(row["kind"], row["backend"], row["device"]) for row in rows} == {
        ("DistributedDataParallel", "gloo", "cpu")
    }


def test_one_worker_needs_no_wrapper(fit: Callable[..., Result]) -> None:
    def function() -> None:
        model = prepare_model(torch.nn.Linear(3, 1))
        train.report({"kind": type(model).__name__, "world": dist.get_world_size()})

    assert fit(function, 1).metrics == {"kind": "Linear", "world": 1}


def test_a_model_can_be_sharded(fit: Callable[..., Result]) -> None:
    def function() -> None:
        torch.manual_seed(0)
        whole = torch.nn.Linear(3, 4)
        count = sum(each.numel() for each in whole.parameters())
        model = prepare_model(whole, parallel_strategy="fsdp")
        learn(model, seed=0)
        here = sum(each.to_local().numel() for each in model.parameters())
        full = [each.full_tensor().detach().flatten().tolist() for each in model.parameters()]
        train.report({"here": here, "whole": count, "full": full})

    rows = fit(function).rank_metrics().to_dict("records")
    assert sum(row["here"] for row in rows) == rows[0]["whole"]
    assert rows[0]["full"] == rows[1]["full"]


def test_a_loader_gives_each_worker_its_part(fit: Callable[..., Result]) -> None:
    def function() -> None:
        loader = prepare_data_loader(DataLoader(TensorDataset(torch.arange(12)), batch_size=3, shuffle=True))
        passes = []
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            passes.append([number for (batch,) in loader for number in batch.tolist()])
        train.report({"passes": passes, "batches": len(loader)})

    rows = fit(function).rank_metrics().to_dict("records")
    assert [row["batches"] for row in rows] == [2, 2]
    for epoch in range(2):
        assert sorted(number for row in rows for number in row["passes"][epoch]) == list(range(12))
    assert rows[0]["passes"][0] != rows[0]["passes"][1]


def test_a_dataset_comes_as_tensors(fit: Callable[..., Result]) -> None:
    import skate.data

    def function() -> None:
        shard = train.get_dataset_shard("train")
        seen = [number for batch in shard.iter_torch_batches(batch_size=4) for number in batch["id"].tolist()]
        train.report({"seen": seen})

    rows = fit(function, datasets={"train": skate.data.range(20)}).rank_metrics()["seen"]
    assert sorted(number for seen in rows for number in seen) == list(range(20))


def test_a_run_can_be_repeated_exactly(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig]
) -> None:
    def function() -> None:
        enable_reproducibility(7)
        model = prepare_model(torch.nn.Linear(3, 1))
        learn(model, seed=1)
        train.report({"weights": weights_of(model)})

    first = fit(function, run=run_config("first")).metrics
    assert first == fit(function, run=run_config("second")).metrics


def test_a_killed_rank_does_not_change_what_is_learned(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig]
) -> None:
    def function(config: dict[str, Any]) -> None:
        torch.manual_seed(0)
        rank = train.get_context().get_world_rank()
        plain = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(plain.parameters(), lr=0.05)
        begun = 0
        if (checkpoint := train.get_checkpoint()) is not None:
            with checkpoint.as_directory() as folder:
                state = torch.load(os.path.join(folder, "state"))
            plain.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            begun = state["step"] + 1
        model = prepare_model(plain)
        for step in range(begun, 6):
            if step == config["dies_at"] and rank == 1 and begun == 0:
                die()
            numbers = torch.Generator().manual_seed(100 * step + rank)
            optimizer.zero_grad()
            model(torch.randn(8, 3, generator=numbers)).pow(2).mean().backward()
            optimizer.step()
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = None
                if rank == 0:
                    state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, os.path.join(folder, "state"))
                    checkpoint = Checkpoint.from_directory(folder)
                train.report({"weights": weights_of(plain)}, checkpoint=checkpoint)

    undisturbed = fit(function, config={"dies_at": None}, run=run_config("undisturbed")).metrics
    killed = fit(function, config={"dies_at": 3}, run=run_config("killed", failures=1)).metrics
    assert killed == undisturbed


def test_a_function_that_knows_torch_may_say_ops_of_anything(fit: Callable[..., Result]) -> None:
    class Mine:
        ops = "mine"

    def function() -> None:  # cloudpickle takes `torch.ops` along, which is no plain module
        train.report({"ops": Mine.ops, "same": torch.ops is sys.modules["torch.ops"]})

    assert fit(function, 1).metrics == {"ops": "mine", "same": True}


def test_a_process_group_is_set_up_as_told(fit: Callable[..., Result]) -> None:
    with pytest.raises(ValueError, match="init_method"):
        TorchConfig(init_method="carrier pigeon")

    def function() -> None:
        train.report({"timeout": dist.distributed_c10d._get_default_timeout("gloo").total_seconds() > 0})

    assert fit(function, 1, torch_config=TorchConfig(backend="gloo", timeout_s=30)).metrics == {
        "timeout": True
    }
