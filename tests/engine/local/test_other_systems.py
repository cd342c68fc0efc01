"""The engine on a system that has nothing of Linux alone: no epoll, no /proc, no prctl, no shared memory folder.

Each interpreter of the session loses those before it loads Skate, so that no part of the engine can use them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM_TIMEOUT_S = 60.0

# Loaded by every interpreter at its start.
WITHOUT_LINUX = """
import mmap, os, select, signal, socket, sys

MISSING = {
    mmap: ["MAP_ANONYMOUS", "MAP_POPULATE"],
    os: [
        "copy_file_range", "eventfd", "eventfd_read", "eventfd_write", "fdatasync", "memfd_create", "pidfd_open",
        "pipe2", "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "sendfile", "splice",
        "waitid",
    ],
    select: [name for name in dir(select) if name.lower().startswith("epoll")],
    signal: ["sigtimedwait", "sigwaitinfo"],
    socket: ["SOCK_SEQPACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "MSG_CMSG_CLOEXEC"],
}
for module, names in MISSING.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.modules.pop("selectors", None)  # loaded already where a package's .pth file needs it

def hook(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        path = str(arguments[0])
        if path.startswith(("/proc", "/sys", "/dev/shm")):
            frame = sys._getframe(1)
            while frame is not None:  # psutil has another implementation for each system
                if frame.f_globals.get("__name__", "").startswith("psutil"):
                    return
                frame = frame.f_back
            raise FileNotFoundError(2, "No such file or directory", path)
    elif event == "ctypes.dlsym" and arguments[1] == "prctl":
        raise AttributeError("prctl")

sys.addaudithook(hook)
"""

PROGRAM = """
import os, select, time

assert not hasattr(select, "epoll")

import numpy as np
import skate
from skate._engine.common.platform import system

assert system.NAME == "portable"
skate.init(num_cpus=2, object_store_memory=50_000_000)

@skate.remote
def double(value):
    return 2 * value

@skate.remote
def nested(value):
    return skate.get(double.remote(value)) + 1

@skate.remote
def environment():
    assert system.NAME == "portable" and not hasattr(os, "pipe2")
    return os.environ["WHO"]

@skate.remote
class Counter:
    def __init__(self):
        self.count = 0

    def add(self, amount):
        self.count += amount
        return self.count

    def pid(self):
        return os.getpid()

@skate.remote
class Concurrent:
    async def double(self, reference):
        return 2 * await reference[0]

assert skate.get([double.remote(number) for number in range(100)]) == list(range(0, 200, 2))
assert skate.get(nested.remote(1)) == 3
arrays = [skate.put(np.full(2_000_000, number)) for number in range(6)]  # more than the store holds
assert [int(skate.get(double.remote(each))[0]) for each in arrays] == [0, 2, 4, 6, 8, 10]
counter = Counter.options(max_restarts=1).remote()
assert [skate.get(counter.add.remote(1)) for _ in range(20)] == list(range(1, 21))
os.kill(skate.get(counter.pid.remote()), 9)
while True:
    try:
        assert skate.get(counter.add.remote(1)) == 1  # it has started again
        break
    except skate.exceptions.RayActorError:
        continue
concurrent = Concurrent.remote()
assert skate.get([concurrent.double.remote([each]) for each in [skate.put(1), double.remote(2)]]) == [2, 8]
assert skate.get(environment.options(runtime_env={"env_vars": {"WHO": "me"}}).remote()) == "me"
try:
    skate.get(double.remote(None))
except TypeError as error:
    assert "unsupported operand" in str(error)
ready, rest = skate.wait([double.remote(1), Counter.remote().pid.remote()], num_returns=2)
assert not rest
skate.shutdown()
print("done")
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_program_runs_without_anything_of_linux(tmp_path: Path, start: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LINUX)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "SKATE_PLATFORM": "portable",
        "SKATE_START": start,
    }
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr
    assert done.stderr == ""


# A system whose frameworks do not survive a fork.
NO_FORK_AFTER_IMPORTS = """
import sys
from skate._engine.common.platform import portable

portable.FORKS_AFTER_IMPORTS = False
"""

PRELOADING = """
import sys, types
import skate

skate.init(num_cpus=1, preload=["colorsys"], log_to_driver=False)

def loaded():
    return [name for name in ("colorsys", "wave") if name in sys.modules]

task = skate.remote(loaded)
print(skate.get(task.remote()))
print(skate.get(task.options(runtime_env={"preload": ["wave"]}).remote()))
skate.shutdown()
"""


def test_where_frameworks_do_not_survive_a_fork_nothing_is_imported_before_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PRELOADING)
    found = {}
    for name, customization in (("usual", ""), ("fragile", NO_FORK_AFTER_IMPORTS)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(customization)
        path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        done = subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONPATH": path, "SKATE_PLATFORM": "portable"},
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
        assert done.stderr == ""
        found[name] = done.stdout.splitlines()
    assert found == {"usual": ["['colorsys']", "['colorsys', 'wave']"], "fragile": ["[]", "[]"]}


def test_a_way_to_start_workers_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from skate._engine.local.driver.launcher import forks_workers

    monkeypatch.setenv("SKATE_START", "thread")
    with pytest.raises(ValueError, match="SKATE_START is 'thread': set it to fork or spawn"):
        forks_workers()
