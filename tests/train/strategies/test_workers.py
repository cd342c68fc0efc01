"""What workers find when a training function begins: libraries that look for it need no help from the user."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

torch = pytest.importorskip("torch")

from skate import train  # noqa: E402
from skate.train import Checkpoint, Result, RunConfig, ScalingConfig  # noqa: E402
from skate.train.torch import TorchTrainer, prepare_model  # noqa: E402

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine")]


@pytest.fixture
def fit(fit_with: Callable[..., Result]) -> Callable[..., Result]:
    return partial(fit_with, TorchTrainer)


def test_libraries_are_told_where_and_with_what_to_compute(
    fit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def function() -> None:
        names = ("DS_ACCELERATOR", "ACCELERATE_USE_CPU", "ACCELERATE_TORCH_DEVICE", "OMP_NUM_THREADS")
        train.report({name: os.environ.get(name) for name in names} | {"threads": torch.get_num_threads()})

    assert fit(
        function, scaling_config=ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2})
    ).metrics == {
        "DS_ACCELERATOR": "cpu",
        "ACCELERATE_USE_CPU": "true",
        "ACCELERATE_TORCH_DEVICE": "cpu",
        "OMP_NUM_THREADS": "2",
        "threads": 2,
    }


def test_a_worker_with_one_cpu_starts_no_threads_to_compute(
    fit: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def function() -> None:
        def foreign() -> set[str]:  # threads that Python does not know
            known = {str(thread.native_id) for thread in threading.enumerate()}
            return set(os.listdir("/proc/self/task")) - known

        before = foreign()
        torch.nn.Linear(256, 256)(torch.ones(256, 256)).sum().backward()
        # A Python thread that is ending is foreign for a moment; those that compute stay.
        deadline = time.monotonic() + 10
        while (started := foreign() - before) and time.monotonic() < deadline:
            time.sleep(0.01)
        train.report({"started": len(started)})

    assert fit(function, 1).metrics == {"started": 0}


def test_training_in_this_process_leaves_its_environment_as_it_was(fit: Callable[..., Result]) -> None:
    before = dict(os.environ)
    result = fit(lambda: train.report({"told": "ACCELERATE_TORCH_DEVICE" in os.environ}), 0)
    assert result.metrics == {"told": True}
    assert dict(os.environ) == before


def test_a_first_step_imports_nothing(fit: Callable[..., Result]) -> None:
    def function() -> None:
        before = set(sys.modules)
        model = prepare_model(torch.nn.Linear(2, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        train.report({"imported": sorted(name for name in set(sys.modules) - before if "torch" in name)})

    result = fit(function)
    assert result.metrics is not None
    assert len(result.metrics["imported"]) < 5, result.metrics["imported"]


def test_modules_that_the_user_names_are_preloaded_beside_those_of_the_trainer(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig]
) -> None:
    def function() -> None:
        loaded = {name: name in sys.modules for name in ("this", "torch._dynamo")}
        train.report(loaded)

    run = run_config(worker_runtime_env={"preload": ["this"]})
    assert fit(function, 1, run=run).metrics == {"this": True, "torch._dynamo": True}


def test_deepspeed_is_initialised_as_programs_for_ray_do(fit: Callable[..., Result]) -> None:
    deepspeed = pytest.importorskip("deepspeed")

    def function() -> None:
        import deepspeed.comm
        import torch.distributed as dist
        from deepspeed.pipe import LayerSpec, PipelineModule

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # would be compiled
        context = train.get_context()
        if not dist.is_initialized():
            dist.init_process_group(
                "gloo", world_size=context.get_world_size(), rank=context.get_world_rank()
            )
        found = deepspeed.comm.is_initialized()
        if not found:
            deepspeed.comm.init_distributed(
                dist_backend="gloo", auto_mpi_discovery=False, distributed_port=29500, verbose=False
            )
        layers = [
            LayerSpec(torch.nn.Linear, 8, 16),
            LayerSpec(torch.nn.ReLU),
            LayerSpec(torch.nn.Linear, 16, 8),
            LayerSpec(torch.nn.ReLU),
            LayerSpec(torch.nn.Linear, 8, 4),
        ]
        torch.manual_seed(0)
        model = PipelineModule(
            layers=layers,
            num_stages=2,
            loss_fn=torch.nn.CrossEntropyLoss(),
            partition_method="uniform",
            activation_checkpoint_interval=0,
        )
        engine, _, _, _ = deepspeed.initialize(
            model=model,
            config={
                "train_batch_size": 8,
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 2,
                "optimizer": {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True}},
                "zero_optimization": {"stage": 1, "reduce_bucket_size": 2e8},
                "pipeline": {"pipe_partitioned": True, "grad_partitioned": True},
            },
            dist_init_required=False,
        )
        rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
        labels = torch.arange(4)
        for step in range(5):
            loss = engine.train_batch(data_iter=iter([(rows, labels)] * 2))
            with tempfile.TemporaryDirectory() as folder:
                engine.save_checkpoint(folder)
                train.report({"loss": loss, "step": step}, checkpoint=Checkpoint.from_directory(folder))

    del deepspeed
    result = fit(function)
    assert result.metrics is not None
    assert result.metrics_dataframe is not None
    losses = result.metrics_dataframe["loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        stages = {name for name in os.listdir(os.path.join(folder, "global_step5")) if name.startswith("mp")}
    assert stages == {"mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"}
