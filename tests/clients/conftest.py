"""Clients of language models, which run in environments of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skate import serve
from tests.conftest import LeakWatch

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_TIMEOUT_S = 580  # seconds after which a program is taken to hang: a busy machine generates slowly

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def run_client() -> Run:
    """Return a function that runs a program in an environment, and returns the JSON object that it prints last."""

    def run(environment: str, program: str, *arguments: str) -> Any:
        python = ROOT / f".venv-{environment}" / "bin" / "python"
        if not python.exists():
            pytest.fail(f"there is no {python}: run `make compat-openai`, which builds it")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [str(python), str(PROGRAMS / program), *arguments],
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
            env=variables,
        )
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def serving(leak_watch: LeakWatch) -> Iterator[Callable[[Any], str]]:
    """Return a function that runs an application in the module's session, and returns the URL."""
    with leak_watch.shared_session(num_cpus=4):
        serve.start(http_options={"port": 0})

        def run(app: Any) -> str:
            serve.run(app)
            host, port = serve.address()
            return f"http://{host}:{port}"

        yield run
        serve.shutdown()
