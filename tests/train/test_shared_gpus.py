"""Workers with a fraction of a GPU each, on a machine with any number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

import skate  # noqa: E402
from skate import train  # noqa: E402
from skate.train import RunConfig, ScalingConfig, TrainingFailedError  # noqa: E402
from skate.train.torch import TorchConfig, TorchTrainer  # noqa: E402


@pytest.fixture(autouse=True)
def two_gpus() -> Iterator[None]:
    skate.init(num_cpus=4, num_gpus=2)
    yield
    skate.shutdown()


def tell() -> None:
    train.report({"backend": torch.distributed.get_backend()})


def fit(run: RunConfig, gpus: float, backend: str | None) -> train.Result:
    return TorchTrainer(
        tell,
        torch_config=TorchConfig(backend=backend),
        scaling_config=ScalingConfig(
            num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": gpus}
        ),
        run_config=run,
    ).fit()


def test_workers_that_share_a_gpu_use_gloo(
    run_config: Callable[..., RunConfig], caplog: pytest.LogCaptureFixture
) -> None:
    assert fit(run_config(), 0.5, None).metrics == {"backend": "gloo"}
    assert "ranks 0, 1 have the same GPU" in caplog.text


def test_nccl_is_refused_at_once_where_workers_share_a_gpu(run_config: Callable[..., RunConfig]) -> None:
    with pytest.raises(TrainingFailedError, match=r"ranks 0, 1 have the same GPU.*backend='gloo'"):
        fit(run_config(failures=3), 0.5, "nccl")
    with pytest.raises(TrainingFailedError, match="have the same GPU"):
        fit(run_config("both"), 0.5, "cpu:gloo,cuda:nccl")


def test_a_gpu_for_each_worker_is_not_shared(
    run_config: Callable[..., RunConfig], caplog: pytest.LogCaptureFixture
) -> None:
    fit(run_config(), 1, "gloo")
    assert "same GPU" not in caplog.text
