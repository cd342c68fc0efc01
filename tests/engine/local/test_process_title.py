from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import skate
from tests.contract.support import eventually

pytestmark = pytest.mark.linux_layer("a process can replace its command line")


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def own_title() -> tuple[int, str]:
    return os.getpid(), title(os.getpid())


@skate.remote
class Plain:
    def __init__(self) -> None:
        self.first = own_title()[1]

    def work(self) -> tuple[str, int, str]:
        return self.first, *own_title()


@skate.remote
class Concurrent:
    async def work(self) -> str:
        return own_title()[1]


def test_the_title_of_a_worker_is_the_task_or_method_that_it_runs() -> None:
    with skate.init(engine="local", num_cpus=3):
        task = skate.remote(own_title)
        worker, shown = skate.get(task.options(name="work").remote())
        assert shown == "skate::work"
        eventually(lambda: title(worker) == "skate::IDLE")

        plain = Plain.remote()
        first, actor, shown = skate.get(plain.work.remote())
        assert (first, shown) == ("skate::Plain.__init__", "skate::Plain.work")
        eventually(lambda: title(actor) == "skate::Plain")

        concurrent = Concurrent.remote()  # which may run many methods at once
        assert skate.get(concurrent.work.remote()) == "skate::Concurrent"

        _, shown = skate.get(task.options(name="x" * 1000).remote())
        assert shown.startswith("skate::xxx")
        assert len(shown) < 1000


def test_a_program_written_for_ray_shows_the_titles_of_ray(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import ray\n"
        "@ray.remote\n"
        "def work():\n"
        "    return open('/proc/self/cmdline').read().rstrip('\\0')\n"
        "print(ray.get(work.remote()))\n"
    )
    command = [sys.executable, "-m", "skate.cli", "run", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "ray::work\n"
