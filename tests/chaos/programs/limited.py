"""Tasks, actors, a generator and a dataset in a process with few open files, little shared memory or a small disk.

Arguments are `name=value`: `files` for the limit of open files, `shm` and `disk` for the sizes of the file systems of
shared memory and of sessions, `work` for the function to run. A wrong value, or an error that `work` does not expect,
ends the program.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import time
from typing import Any

from reporting import ARGUMENTS, report

GIVEN = dict(argument.split("=") for argument in ARGUMENTS)
NEW_NAMESPACE, NEW_USER = 0x00020000, 0x10000000
RECURSIVE, PRIVATE = 0x4000, 0x40000


def limit() -> None:
    """Give this process, and those that it starts, the limits of the arguments."""
    if "files" in GIVEN:
        soft, _, hard = GIVEN["files"].partition(":")
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard or soft)))
    folders = {"shm": "/dev/shm", "disk": os.environ["SKATE_TMPDIR"]}
    if not folders.keys().isdisjoint(GIVEN):
        enter_namespace()
    for name, folder in folders.items():
        if name in GIVEN:
            call("mount", b"tmpfs", folder.encode(), b"tmpfs", 0, f"size={GIVEN[name]}".encode())


def enter_namespace() -> None:
    """Let what is mounted from now on be seen by this process and its descendants only."""
    user, group = os.getuid(), os.getgid()
    try:
        call("unshare", NEW_NAMESPACE)
    except PermissionError:
        try:
            call("unshare", NEW_NAMESPACE | NEW_USER)
        except OSError:
            report("no namespaces")
            sys.exit()
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)


def call(name: str, *arguments: Any) -> None:
    """Call a function of the C library."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


limit()
import numpy as np  # noqa: E402

import skate  # noqa: E402
import skate.data  # noqa: E402
from skate import exceptions  # noqa: E402

MB = 1 << 20


@skate.remote
def fill(number: int, megabytes: float) -> Any:
    return np.full(int(megabytes * MB / 8), number)


@skate.remote
def double(array: Any) -> Any:
    return 2 * array


@skate.remote
def several(count: int, megabytes: float) -> Any:
    for number in range(count):
        yield np.full(int(megabytes * MB / 8), number)


@skate.remote(num_cpus=0)
class Keeper:
    def __init__(self) -> None:
        self.kept: list[Any] = []

    def keep(self, array: Any) -> int:
        self.kept.append(array)
        return len(self.kept)

    def last(self) -> Any:
        return self.kept[-1]


def check(arrays: list[Any], expected: list[int]) -> None:
    found = [(int(array[0]), int(array[-1])) for array in arrays]
    assert found == [(number, number) for number in expected], found


def brief() -> None:
    """Make, keep and read objects that do not fit into memory."""
    made = [fill.remote(number, 3) for number in range(3)]
    put = [skate.put(np.full(MB // 4, number)) for number in range(3)]
    check(skate.get(made + put), [0, 1, 2, 0, 1, 2])
    check(skate.get([double.remote(ref) for ref in made]), [0, 2, 4])
    check(skate.get([fill.remote(number, 0.2) for number in range(150)]), list(range(150)))


def mixed() -> None:
    """Make, keep and read more than fits into memory."""
    numbers = list(range(12))
    made = [fill.remote(number, 3) for number in numbers]
    put = [skate.put(np.full(3 * MB // 8, number)) for number in numbers]
    for _ in range(2):
        for number, ref in enumerate(made + put):
            check([skate.get(ref)], [number % 12])
    check(skate.get([double.remote(ref) for ref in made]), [2 * number for number in numbers])
    check([skate.get(ref) for ref in several.remote(8, 2)], list(range(8)))
    small = [fill.remote(number, 0.2) for number in range(400)]
    check(skate.get(small), list(range(400)))
    keepers = [Keeper.remote() for _ in range(3)]
    skate.get([keeper.keep.remote(ref) for ref in put for keeper in keepers])
    check(skate.get([keeper.last.remote() for keeper in keepers]), 3 * [11])
    dataset = skate.data.range(4000, override_num_blocks=20).map_batches(
        lambda batch: {"id": batch["id"], "x": np.ones((len(batch["id"]), 256))}
    )
    assert dataset.materialize().sum("id") == sum(range(4000))
    assert dataset.sort("id", descending=True).take(1)[0]["id"] == 3999


def crowded() -> None:
    """Work while another program fills shared memory, and after it has left."""
    path = "/dev/shm/other-program"
    for step in range(3):
        with open(path, "wb") as file:
            try:
                while step != 1:
                    file.write(bytes(MB // 4))
                    file.flush()
            except OSError:
                report("shared memory is full")
        mixed()
        os.unlink(path)


def fill_the_disk() -> None:
    """Put objects until neither memory nor the disk has room; work again when they are gone."""
    refs: list[Any] = []
    arrays: list[Any] = []
    try:
        while True:
            refs.append(skate.put(np.full(3 * MB // 8, len(refs))))
            arrays.append(skate.get(refs[-1]))
            assert len(refs) < 100
    except exceptions.OutOfDiskError as error:
        report(f"full after {len(refs)}: {error}")
    check(arrays, list(range(len(arrays))))
    check(skate.get(refs[-2:]), [len(refs) - 2, len(refs) - 1])
    try:
        skate.get(fill.remote(1, 3))
        raise AssertionError("there was room")
    except exceptions.OutOfDiskError:
        report("a task was told")
    del refs, arrays
    for number in range(6):
        check([skate.get(fill.remote(number, 3))], [number])


def many_actors() -> None:
    """Start actors until files run out, which is an error and not a hang."""
    keepers: list[Any] = []
    try:
        while len(keepers) < 200:
            keepers.append(Keeper.remote())
            skate.get(keepers[-1].keep.remote(1), timeout=60)
    except exceptions.RayError as error:
        report(f"{type(error).__name__} after {len(keepers)}: {str(error)[:1000]!r}")
    keepers.clear()
    deadline = time.monotonic() + 60
    while True:  # nothing announces that the processes of the actors have ended
        try:
            assert skate.get(double.remote(np.ones(3)), timeout=60)[0] == 2
            return
        except exceptions.RaySystemError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def main() -> None:
    skate.init(num_cpus=2)
    report("started")
    globals()[GIVEN["work"]]()
    skate.shutdown()
    left = []
    for folder in ("/dev/shm", os.environ["SKATE_TMPDIR"]):
        mine = os.path.join(folder, f"skate-{os.getuid()}")
        ours = f"-{os.getpid()}-"
        left += [name for name in os.listdir(mine) if ours in name] if os.path.isdir(mine) else []
    assert not left, left
    report("over")


main()
