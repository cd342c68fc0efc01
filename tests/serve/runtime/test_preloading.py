"""Modules that Serve's processes import before they are needed, and modules that they never import."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import pytest

PROGRAM = """
import json, sys
import skate
from skate import serve
{first}

@serve.deployment(ray_actor_options={{"num_cpus": 0.1}})
class Modules:
    def __init__(self):
        self.found = sorted(sys.modules)
    def __call__(self):
        return self.found

skate.init(num_cpus=2)
serve.start(http_options={{"port": 0}})
handle = serve.run(Modules.bind())
print(json.dumps([sorted(sys.modules), handle.remote().result()]))
"""


class Imported(NamedTuple):
    """The modules of a program that runs an application, and those that a replica had when it was made."""

    program: set[str]
    replica: set[str]


def imported(first: str = "") -> Imported:
    code = PROGRAM.format(first=first)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return Imported(*map(set, json.loads(done.stdout.splitlines()[-1])))


@pytest.fixture(scope="module")
def plain() -> Imported:
    return imported()


def test_only_the_proxy_imports_a_server(plain: Imported) -> None:
    for process in plain:
        assert not process & {"uvicorn", "skate.serve._proxy.listeners"}


def test_a_program_imports_the_controller_but_nothing_behind_it(plain: Imported) -> None:
    assert "skate.serve._controller.actor" in plain.program
    assert not plain.program & {"skate.serve._controller.state", "skate.serve._replica.actor"}


def test_replicas_have_what_requests_need_when_they_are_made(plain: Imported) -> None:
    assert {"starlette.requests", "skate.serve._replica.server", "uvloop"} <= plain.replica


@pytest.mark.parametrize("library", ["fastapi", "pydantic.main"])
def test_replicas_are_made_with_the_libraries_that_the_program_has_imported(
    plain: Imported, library: str
) -> None:
    assert library not in plain.replica
    assert library in imported(f"import {library}").replica
