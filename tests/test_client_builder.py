"""`skate.client`: the older way to start a session."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest

import skate
from skate.client_builder import ClientBuilder, client


@pytest.fixture(autouse=True)
def no_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("SKATE_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    yield
    skate.shutdown()


def test_a_local_session_can_be_used_in_a_with_statement() -> None:
    with pytest.warns(DeprecationWarning, match="ray.client"):
        context = client("local").namespace("tests").connect()
    with context:
        assert skate.get_runtime_context().namespace == "tests"
        assert context.python_version.startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert not skate.is_initialized()
    context.disconnect()


def test_a_runtime_environment_reaches_the_workers() -> None:
    @skate.remote
    def variable() -> str | None:
        import os

        return os.environ.get("FROM_CLIENT")

    with pytest.warns(DeprecationWarning, match=r"ray\.init\(runtime_env=<your_runtime_env>\)"):
        context = client().env({"env_vars": {"FROM_CLIENT": "yes"}}).connect()
    with context:
        assert skate.get(variable.remote()) == "yes"


def test_the_warning_shows_what_to_write_instead() -> None:
    with (
        pytest.warns(DeprecationWarning, match=r'ray\.init\("ray://127\.0\.0\.1:1", namespace="n"\)'),
        pytest.raises(ConnectionError, match=r"No Ray cluster answers at ray://127\.0\.0\.1:1 "),
    ):
        client("127.0.0.1:1").namespace("n").connect()


@pytest.mark.parametrize("address", ["host:10001", "ray://host:10001"])
def test_another_address_is_a_ray_cluster(address: str) -> None:
    builder = client(address)
    assert type(builder) is ClientBuilder
    assert builder.address == "host:10001"


def test_the_environment_gives_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://host:10001")
    assert client().address == "host:10001"
    assert client("local").address == "local"


@pytest.mark.parametrize("address", ["http://127.0.0.1:8265", "https://127.0.0.1:8265"])
def test_the_address_of_a_dashboard_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"RAY_ADDRESS.*GCS address"):
        client(address)


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(RuntimeError, match="names the module 'badmodule' before '://', which does not exist"):
        client("badmodule://address")


def test_a_module_may_bring_its_own_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    class Special(ClientBuilder):
        pass

    module = types.ModuleType("special_clusters")
    monkeypatch.setitem(sys.modules, "special_clusters", module)
    with pytest.raises(RuntimeError, match="has no class ClientBuilder"):
        client("special_clusters://here")
    module.ClientBuilder = Special  # type: ignore[attr-defined]
    assert isinstance(client("special_clusters://here"), Special)
    assert client("special_clusters://here").address == "here"
