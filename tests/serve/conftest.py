"""Run the tests of Serve on the engines: local, inline for marked tests, and with `--engine ray` on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate import serve
from skate.serve._controller.client import connect
from tests.plugins.sessions import declare_gap, gap_for
from tests.serve.gaps import GAPS

HERE = Path(__file__).parent
LIGHT = {"num_cpus": 0.1}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine_name" in metafunc.fixturenames:
        usual = getattr(metafunc.module, "ENGINES", ["local"])
        metafunc.parametrize("engine_name", metafunc.config.getoption("--engine") or usual, scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and (reason := gap_for(item, GAPS, HERE)):
            declare_gap(item, reason)


@pytest.fixture(scope="module")
def serve_of_module() -> Iterator[None]:
    """Shut Serve down after the last test of a module, before its session."""
    yield
    serve.shutdown()


@pytest.fixture
def url(engine: str, serve_of_module: None) -> Iterator[str]:
    """Run Serve on a free port; return where. All applications of the test are deleted after it."""
    serve.start(http_options={"port": 0})
    host, port = serve.address()
    yield f"http://{host}:{port}"
    client = connect()
    if client is not None:
        client.delete(list(client.status().applications), wait=True)


@pytest.fixture
def run(url: str) -> Callable[..., Any]:
    """Run an application, and return its handle."""

    def go(app: serve.Application, **options: Any) -> Any:
        return serve.run(app, **options)

    return go


def light(*args: Any, **options: Any) -> Any:
    """Make a deployment whose replicas need so few resources that many of them fit."""
    options.setdefault("ray_actor_options", LIGHT)
    return serve.deployment(*args, **options)
