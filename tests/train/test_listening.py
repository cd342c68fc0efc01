"""Workers listen on the loopback interface only."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from skate import train
from skate.train import Result

torch = pytest.importorskip("torch")
dist = torch.distributed

from skate.train.torch import TorchTrainer  # noqa: E402  # torch may be missing

pytestmark = [pytest.mark.ray_more, pytest.mark.usefixtures("engine"), pytest.mark.one_machine]

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listening(pid: int | None = None) -> list[tuple[str, int]]:
    """Return the TCP addresses that a process listens on."""
    found = psutil.Process(pid).net_connections(kind="tcp")
    return sorted({tuple(each.laddr) for each in found if each.status == psutil.CONN_LISTEN})


def of_the_session(driver: int) -> list[tuple[str, int]]:
    """Return what the driver and all processes that it has started listen on."""
    family = [driver, *(child.pid for child in psutil.Process(driver).children(recursive=True))]
    return [address for pid in family for address in listening(pid)]


def test_workers_of_torch_listen_with_gloo_on_the_loopback_and_with_nothing_else(
    fit_with: Callable[..., Result], engine: str
) -> None:
    driver = os.getpid()
    before = listening()

    def function() -> None:
        dist.all_reduce(torch.ones(1))
        train.report(
            {
                "worker": listening(),
                "session": of_the_session(driver),
                "port": int(os.environ["MASTER_PORT"]),
                "store": type(dist.distributed_c10d._get_default_store().underlying_store).__name__,
            }
        )
        dist.barrier()

    rows = fit_with(TorchTrainer, function).rank_metrics().to_dict("records")
    assert len(rows) == 2
    for row in rows:
        if engine == "local":
            assert row["store"] == "FileStore"
            assert row["port"] not in [port for _, port in row["worker"]]
            assert {host for host, _ in row["worker"]} <= LOOPBACK
            assert {host for host, port in row["session"] if (host, port) not in before} <= LOOPBACK
        else:  # workers of Ray listen on ports of their own
            assert {host for host, port in row["worker"] if port == row["port"]} <= LOOPBACK


def test_a_training_function_may_form_its_own_process_group_from_the_environment(
    fit_with: Callable[..., Result],
) -> None:
    def function() -> None:
        dist.destroy_process_group()
        for _ in range(2):
            dist.init_process_group("gloo")
            numbers = torch.ones(1)
            dist.all_reduce(numbers)
            train.report({"sum": numbers.item(), "host": os.environ["MASTER_ADDR"]})
            dist.destroy_process_group()

    assert fit_with(TorchTrainer, function).metrics == {"sum": 2.0, "host": "127.0.0.1"}


def test_an_interface_that_the_user_has_chosen_is_kept(
    fit_with: Callable[..., Result], run_config: Callable[..., Any]
) -> None:
    def function() -> None:
        train.report({name: os.environ[name] for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")})

    chosen = {"env_vars": {"NCCL_SOCKET_IFNAME": "eth9"}}
    result = fit_with(TorchTrainer, function, 1, run=run_config(worker_runtime_env=chosen))
    assert result.metrics == {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "eth9"}


def test_the_store_is_in_a_folder_of_this_user_alone_and_goes_with_the_run(
    fit_with: Callable[..., Result],
) -> None:
    def function() -> None:
        path = Path(dist.distributed_c10d._get_default_store().underlying_store.path)
        train.report({"path": str(path), "mode": oct(path.parent.stat().st_mode & 0o777)})

    metrics = fit_with(TorchTrainer, function).metrics
    assert metrics is not None
    assert metrics["mode"] == "0o700"
    assert not Path(metrics["path"]).parent.exists()


def test_where_processes_share_no_folder_the_store_is_a_server_on_one_address() -> None:
    program = """
import psutil
from skate.train.torch import _rendezvous

found = _rendezvous.open_store("127.0.0.1", 1, 60)
sockets = psutil.Process().net_connections(kind="tcp")
listening = [tuple(each.laddr) for each in sockets if each.status == psutil.CONN_LISTEN]
assert listening == [("127.0.0.1", found.port)], listening
store = _rendezvous.connect(found, "127.0.0.1", 1, 60)
store.set("key", "value")
assert (store.get("key"), found.file) == (b"value", None)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
