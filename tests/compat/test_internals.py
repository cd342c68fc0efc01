"""Private names of Ray that packages touch: each is there under Ray's path, and means what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# What each name is touched by.
TOUCHED = {
    "ray._private.services.get_node_ip_address": "Modin",
    "ray._private.state.actors": "Daft",
    "ray._private.state.cluster_resources": "pyDVL",
    "ray._private.worker.global_worker": "Daft",
    "ray._raylet.ObjectRef": "Hamilton",
    "ray.util.client.ray": "Daft",
    "ray.WORKER_MODE": "Daft",
    "ray.experimental.tqdm_ray.tqdm": "Daft",
}

KINDS_OF_PROCESS = """
import ray
from ray._private.worker import global_worker

assert global_worker.mode is None
assert not global_worker.connected

@ray.remote
def mode():
    return ray._private.worker.global_worker.mode

ray.init(num_cpus=1)
assert global_worker.connected
assert global_worker.mode == ray.SCRIPT_MODE != ray.WORKER_MODE
assert ray.get(mode.remote()) == ray.WORKER_MODE
assert not ray.util.client.ray.get_context().is_connected()
assert not ray.util.client.ray.is_connected()
"""

TABLE_OF_ACTORS = """
import os
import ray
from ray._private.state import actors

@ray.remote
class Clerk:
    def pid(self):
        return os.getpid()

clerk = Clerk.options(name="the clerk").remote()
pid = ray.get(clerk.pid.remote())
row = actors(clerk._actor_id.hex())
assert row["Address"]["NodeID"] == ray.get_runtime_context().get_node_id()
assert (row["Pid"], row["Name"], row["State"], row["ActorClassName"]) == (pid, "the clerk", "ALIVE", "Clerk")
assert actors() == {clerk._actor_id.hex(): row}
assert actors("ff" * 16) == {}
"""


def run(program: str, folder: Path) -> None:
    """Run a Ray program on Skate; fail if it fails."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "skate.cli", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_each_name_is_found_under_rays_path(tmp_path: Path) -> None:
    lookups = (f"import {module}; {name}" for name in TOUCHED for module in [name.rpartition(".")[0]])
    run("\n".join(lookups), tmp_path)


@pytest.mark.parametrize("program", [KINDS_OF_PROCESS, TABLE_OF_ACTORS], ids=["process", "actors"])
def test_what_a_private_name_says_is_true(program: str, tmp_path: Path) -> None:
    run(program, tmp_path)
