"""Ways to a cluster: by address, by environment, over Ray Client, and with a connection that is there already."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import skate
from skate._engine.registry import choose
from tests.plugins.ray_clusters import cluster, free_port

ROOT = Path(__file__).parents[3]

PROGRAM = """
    import ray

    @ray.remote
    def where():
        import ray

        return ray.__name__, ray.get_runtime_context()._engine.name

    ray.init()
    print(*ray.get(where.remote()), len(ray.nodes()))
"""


@pytest.fixture(scope="module")
def with_client() -> Iterator[tuple[str, str]]:
    """A cluster that Ray Client can reach: its address, and that for clients."""
    port = free_port()
    with cluster([{"num_cpus": 2, "ray_client_server_port": port}]) as running:
        yield running.address, f"ray://127.0.0.1:{port}"


@skate.remote
def double(x: int) -> int:
    return 2 * x


@skate.remote
class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    def fail(self) -> None:
        raise KeyError("no such account")

    def history(self) -> Iterator[int]:
        yield self.balance


def run(tmp_path: Path, *command: str, **variables: str) -> str:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, "-m", "skate.cli", "run", *command, str(script)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("engine", "address", "chosen"),
    [
        (None, "ray://head:10001", ("ray", "ray://head:10001")),
        (None, "10.0.0.7:6379", ("ray", "10.0.0.7:6379")),
        (None, "[fd00::7]:6379", ("ray", "[fd00::7]:6379")),
        ("ray", "auto", ("ray", "auto")),
        ("ray", None, ("ray", None)),
        (None, "auto", ("local", "auto")),
        (None, "/tmp/skate-0/session-1:2", ("local", "/tmp/skate-0/session-1:2")),
    ],
)
def test_an_address_says_which_engine_is_meant(
    engine: str | None, address: str | None, chosen: tuple[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SKATE_ADDRESS", "SKATE_ENGINE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert choose(engine, address) == chosen


def test_a_cluster_is_found_by_its_address(with_client: tuple[str, str]) -> None:
    context = skate.init(with_client[0], preflight="off")
    assert context["engine"] == "ray"
    assert skate.get(double.remote(21)) == 42


def test_a_program_finds_the_cluster_that_the_environment_names(
    with_client: tuple[str, str], tmp_path: Path
) -> None:
    assert run(tmp_path, SKATE_ADDRESS=with_client[0]) == "ray ray 1"


def test_a_program_finds_the_cluster_that_the_command_line_names(
    with_client: tuple[str, str], tmp_path: Path
) -> None:
    arguments = ("--engine", "ray", "--address", "auto")
    assert run(tmp_path, *arguments, RAY_ADDRESS=with_client[0]) == "ray ray 1"


def test_a_program_may_bring_a_ray_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
            import skate

            with skate.init(engine="ray", num_cpus=3, include_dashboard=False):
                print(skate.cluster_resources()["CPU"], skate.get(skate.remote(abs).remote(-7)))
        """)
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout.strip() == "3.0 7", done.stderr


def test_a_connection_that_is_there_is_taken(with_client: tuple[str, str]) -> None:
    import ray

    ray.init(with_client[0])
    skate.init(engine="ray")
    assert skate.get(double.remote(4)) == 8
    assert ray.is_initialized()


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}"])
def test_an_address_without_a_cluster_is_a_connection_error(form: str) -> None:
    address = form.format(free_port())
    with pytest.raises(ConnectionError, match=f"No Ray cluster answers at {re.escape(address)}"):
        skate.init(address)
    assert not skate.is_initialized()


class TestRayClient:
    """What works over Ray Client, from outside of the cluster, in one session: each starts a server on the cluster."""

    @pytest.fixture
    def no_session_stays(self) -> None:
        """Leave the session to the next test."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def session_ends(cls) -> Iterator[None]:
        yield
        skate.shutdown()

    @pytest.fixture(autouse=True)
    def session(self, with_client: tuple[str, str]) -> None:
        if not skate.is_initialized():
            # From outside of the cluster, which does not know this file.
            skate.init(with_client[1], runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})

    def test_tasks_objects_and_references(self) -> None:
        assert skate.get([double.remote(i) for i in range(3)]) == [0, 2, 4]
        assert skate.get(double.remote(double.remote(skate.put(1)))) == 4
        ready, rest = skate.wait([double.remote(1), double.remote(2)], num_returns=2)
        assert len(set(ready)) == 2
        assert rest == []

    def test_actors_and_their_handles(self) -> None:
        account = Account.options(name="mine").remote(1)

        @skate.remote
        def pay(account: Any) -> int:
            return skate.get(account.deposit.remote(10))  # type: ignore[no-any-return]

        assert skate.get(pay.remote(account)) == 11
        assert skate.get(skate.get_actor("mine").deposit.remote(1)) == 12

    def test_errors_keep_their_type(self) -> None:
        with pytest.raises(KeyError, match="no such account") as raised:
            skate.get(Account.remote(1).fail.remote())
        assert isinstance(raised.value, skate.exceptions.RayTaskError)

    def test_placement_groups(self) -> None:
        group = skate.util.placement_group([{"CPU": 1}])
        assert group.wait(60)
        skate.util.remove_placement_group(group)

    async def test_references_can_be_awaited(self) -> None:
        assert await double.remote(4) == 8

    def test_streams_are_refused_with_the_way_out(self) -> None:
        with pytest.raises(NotImplementedError, match="address='auto'"):
            Account.remote(1).history.remote()
