"""Training with JAX: workers are processes of one program."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest

pytest.importorskip("jax")

from skate import train
from skate.train import Result, RunConfig, ScalingConfig
from skate.train.v2.jax import JaxConfig, JaxTrainer

pytestmark = [pytest.mark.frameworks, pytest.mark.usefixtures("engine")]


@pytest.fixture
def fit(fit_with: Callable[..., Result]) -> Callable[..., Result]:
    return partial(fit_with, JaxTrainer)


def total() -> tuple[float, int]:
    """Return the sum of one number from each worker, and how many devices there are."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as Axes

    mesh = jax.make_mesh((jax.device_count(),), ("workers",))
    mine = np.array([1.0 + train.get_context().get_world_rank()])
    numbers = jax.make_array_from_process_local_data(NamedSharding(mesh, Axes("workers")), mine)
    add = jax.shard_map(
        lambda x: jax.lax.psum(x, "workers"), mesh=mesh, in_specs=Axes("workers"), out_specs=Axes()
    )
    return float(jax.jit(add)(numbers)[0]), jax.device_count()


def test_workers_compute_together_and_listen_on_the_loopback(fit: Callable[..., Result]) -> None:
    def function() -> None:
        import jax

        found, devices = total()
        sockets = psutil.Process().net_connections(kind="tcp")
        hosts = {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN}
        train.report(
            {"total": found, "devices": devices, "process": jax.process_index(), "listening": list(hosts)}
        )

    result = fit(function)
    reports = result.rank_metrics().sort_values("rank")
    assert {host for each in reports["listening"] for host in each} == {"127.0.0.1", "::ffff:127.0.0.1"}
    assert list(reports["total"]) == [3.0, 3.0]
    assert list(reports["devices"]) == [2, 2]
    assert list(reports["process"]) == [0, 1]


def test_one_worker_needs_no_others(fit: Callable[..., Result]) -> None:
    assert fit(total, workers=1).return_value == (1.0, 1)


def test_workers_that_failed_start_again_and_meet_again(
    fit: Callable[..., Result], run_config: Callable[..., RunConfig], tmp_path: Any
) -> None:
    def function() -> tuple[float, int]:
        if train.get_context().get_world_rank() == 1 and not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise ValueError("once")
        return total()

    assert fit(function, run=run_config(failures=1)).return_value == (3.0, 2)


def test_where_jax_has_no_build_for_the_device_the_error_says_so(fit: Callable[..., Result]) -> None:
    def function() -> None:
        import jax

        jax.devices()

    with pytest.raises(train.WorkerGroupError, match="no build for 'cuda'"):
        fit(function, jax_config=JaxConfig(use_gpu=True))


def test_workers_compute_on_one_kind_of_device() -> None:
    with pytest.raises(ValueError, match="`use_tpu` and `use_gpu` are both set"):
        JaxConfig(use_gpu=True, use_tpu=True)
    trainer = JaxTrainer(total, scaling_config=ScalingConfig(use_gpu=True))
    assert trainer.backend_config == JaxConfig(use_gpu=True)


def test_the_nodes_of_a_tpu_slice_are_not_chosen_by_labels() -> None:
    with pytest.raises(ValueError, match="Cannot set `label_selector` when `use_tpu=True`"):
        ScalingConfig(num_workers=2, use_tpu=True, topology="2x2x2", label_selector={"zone": "a"})


def test_the_example_learns(run_example: Callable[..., str]) -> None:
    printed = run_example("jax_trainer.py")
    found = re.search(r"^loss: (\S+) at first, (\S+) after 100 steps$", printed, flags=re.MULTILINE)
    assert found is not None
    assert float(found[2]) < float(found[1]) / 3
