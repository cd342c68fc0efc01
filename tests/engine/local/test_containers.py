"""Programs in several containers that share shared memory or the temporary folder, but not both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skate._engine.local.driver import long_lived
from skate._engine.local.session import folders as session
from tests import containers
from tests.contract.support import EVENT_TIMEOUT_S

pytestmark = pytest.mark.linux_layer("containers have namespaces")

WORKING = """
import json, sys
import numpy, skate

skate.init(num_cpus=1, log_to_driver=False)
folder = skate.get_runtime_context().get_session_dir()
references = [skate.put(numpy.full(50_000, number)) for number in range(3)]

@skate.remote
def first(array):
    return int(array[0])

print(json.dumps(folder), flush=True)
sys.stdin.readline()
assert skate.get([first.remote(each) for each in references]) == [0, 1, 2]
assert [int(array[0]) for array in skate.get(references)] == [0, 1, 2]
assert skate.get(skate.put(numpy.full(50_000, 7)))[0] == 7
"""

INLINE = """
import json, os, sys
import skate

skate.init(engine="inline")
folder = skate.get_runtime_context().get_session_dir()
print(json.dumps(folder), flush=True)
sys.stdin.readline()
assert os.path.isdir(folder)
"""

PASSING = """
import json
import skate
from skate._engine.local.driver import long_lived
from skate._engine.local.session import folders as session
from skate._engine.local.session import node_records

skate.init(num_cpus=1, log_to_driver=False)
assert skate.get(skate.remote(lambda: 1).remote()) == 1
session.sweep()  # the node does so in the background
here = skate.get_runtime_context().get_session_dir()
others = [node for node in node_records.nodes() if node.folder != here]
for node in others:
    long_lived.end(node, force=True)
print(json.dumps([node.pid for node in others]), flush=True)
"""


class Site:
    """A folder that containers share, and one of which each has its own version."""

    def __init__(self, shared: Path, private: Path, *, share_memory: bool) -> None:
        self.shared, self.private = shared, private
        places = (shared, private) if share_memory else (private, shared)
        self.variables = dict(zip(("SKATE_SHMDIR", "SKATE_TMPDIR"), map(str, places), strict=True))

    @contextmanager
    def start(self, program: str) -> Iterator[subprocess.Popen[str]]:
        """Run a program in a container of its own, at most to the end of the block."""
        with subprocess.Popen(
            containers.command(sys.executable, "-c", program, private=self.private),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.variables},
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def left(self) -> list[str]:
        """Return the names of the sessions in the shared folder."""
        return [path.name for path in self.shared.glob("skate-*/*-*")]


@pytest.fixture(params=["memory", "files"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    containers.require()
    folder = Path(tempfile.mkdtemp(prefix="skn-", dir="/dev/shm"))
    for name in ("shared", "private"):
        (folder / name).mkdir()
    yield Site(folder / "shared", folder / "private", share_memory=request.param == "memory")
    shutil.rmtree(folder)


def hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return json.loads(line)


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate("\n", timeout=EVENT_TIMEOUT_S)
    assert process.returncode == 0, errors


def test_a_program_does_not_disturb_those_in_other_containers(site: Site) -> None:
    with site.start(WORKING) as working, site.start(INLINE) as inline:
        hear(working), hear(inline)
        with site.start(PASSING) as passing:
            seen = hear(passing)
            finish(passing)
        finish(working)
        finish(inline)
    # A node in another container is visible where the files are shared, but its process is not.
    assert seen == ([0] if site.variables["SKATE_TMPDIR"] == str(site.shared) else [])
    assert site.left() == []


def test_a_killed_container_is_swept_from_another_one(site: Site) -> None:
    with site.start(WORKING) as first, site.start(INLINE) as second:
        hear(first), hear(second)
        first.kill()
        second.kill()
    assert site.left()
    with site.start(PASSING) as passing:
        assert hear(passing) == []
        finish(passing)
    assert site.left() == []


def test_a_node_whose_memory_is_not_shared_takes_no_drivers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.start(WORKING) as working:
        folder = hear(working)
        for name, value in site.variables.items():
            monkeypatch.setenv(name, value)
        visible = site.variables["SKATE_TMPDIR"] == str(site.shared)
        with pytest.raises(ConnectionError, match="another container" if visible else "No Skate node runs"):
            long_lived.find(folder)
        assert session.is_alive(folder) == visible
        finish(working)


def test_processes_are_not_looked_for_in_the_proc_of_another_pid_namespace(tmp_path: Path) -> None:
    """Its numbers belong to other processes in the namespace of the program."""
    containers.require()
    program = """
import os, subprocess
import skate
from skate._engine.local.session import descendants

with subprocess.Popen(["sleep", "1000"], env={**os.environ, descendants.SESSION: "/x"}) as bystander:
    descendants.end_members("/x")
    descendants.end_descendants()
    assert bystander.poll() is None
    skate.init(num_cpus=1, log_to_driver=False)
    assert skate.get(skate.remote(lambda: 1).remote()) == 1
    skate.shutdown()
    assert bystander.poll() is None
    bystander.kill()
"""
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", program]
    variables = {"SKATE_TMPDIR": str(tmp_path), "SKATE_SHMDIR": str(tmp_path)}
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=EVENT_TIMEOUT_S)
    assert list(tmp_path.glob("skate-*/*session-*")) == []
