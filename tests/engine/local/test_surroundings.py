"""Programs that are started in awkward surroundings: without standard streams, in long paths, without /dev/shm."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from skate._engine.local.driver import long_lived
from tests import containers
from tests.contract.support import EVENT_TIMEOUT_S

PROGRAM = """
import os, sys
import numpy, skate

skate.init(num_cpus=2)

@skate.remote
class Actor:
    def total(self, array, other=None):
        print("printed")
        print("printed", file=sys.stderr)
        return int(array.sum()) if other is None else skate.get(other.total.remote(array))

reference = skate.put(numpy.ones(100_000, dtype=numpy.int8))
first, second = Actor.remote(), Actor.remote()
total = skate.get(first.total.remote(reference, second))
folder = skate.get_runtime_context().get_session_dir()
memory = os.path.dirname(os.path.realpath(f"{folder}/shm"))
skate.shutdown()
with open(sys.argv[1], "w") as file:
    print(total, folder, memory, file=file)
"""


def run(report: Path, shell: str = "", **environment: str) -> list[str]:
    """Run the program with redirections or after commands of the shell; return its report."""
    program = shlex.join([sys.executable, "-c", PROGRAM, str(report)])
    done = subprocess.run(
        ["sh", "-c", shell.format(program) if "{}" in shell else f"{program} {shell}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=EVENT_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return report.read_text().split()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_program_needs_no_standard_streams(closed: str, tmp_path: Path) -> None:
    assert run(tmp_path / "report", closed)[0] == "100000"


def test_the_path_of_the_temporary_folder_may_be_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 120)
    total, folder, _ = run(tmp_path / "report", SKATE_TMPDIR=str(long))
    assert total == "100000"
    assert folder.startswith(str(long))
    monkeypatch.setenv("SKATE_TMPDIR", str(long))
    node = long_lived.start(num_cpus=2)
    try:
        attached = run(tmp_path / "report", SKATE_ADDRESS="auto")
    finally:
        assert long_lived.stop() == [node]
    assert attached[:2] == ["100000", node.folder]


def test_objects_are_shared_through_files_where_shared_memory_is_read_only(tmp_path: Path) -> None:
    containers.require()
    mount = "unshare --mount sh -c 'mount -t tmpfs -o ro none /dev/shm && exec \"$@\"' sh {}"
    total, folder, memory = run(tmp_path / "report", mount)
    assert (total, memory) == ("100000", folder)
