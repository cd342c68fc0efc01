"""Segments as files that are mapped: descriptors, full file systems, and objects on disk."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import skate
from skate._base.serialization import loads, serialize
from skate._engine.common import machine_facts, open_files
from skate._engine.common.platform import system
from skate._engine.local.session import segments
from skate._engine.local.session.folders import Session
from skate._engine.local.session.shared_memory import SegmentFiles, SegmentMapping, map_file
from skate._engine.local.session.task_progress import TaskProgress, last_begun, run_id

MANY = 300


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(str(tmp_path), str(tmp_path / "shm"))
    os.mkdir(made.shm)
    os.mkdir(made.spill)
    return made


@pytest.fixture
def full(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session for whose shared memory there is no room."""
    reserve = system.reserve

    def refuse(descriptor: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(session.shm):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(descriptor, size)

    monkeypatch.setattr(system, "reserve", refuse)
    return session


# ---------------------------------------------------------------- mapping


def test_a_mapping_keeps_no_descriptor(session: Session) -> None:
    files = SegmentFiles(session)
    value = serialize(np.arange(20_000))
    before = open_descriptors()
    for number in range(5):
        files.write(str(number), value.size, value, reused=False)
    mappings = [files.map(str(number % 5), value.size) for number in range(20)]
    assert open_descriptors() == before
    arrays = [loads(memoryview(mapping)) for mapping in mappings]
    assert all(array[-1] == 19_999 for array in arrays)
    files.close()


@pytest.mark.linux_machine("it reads /proc/self/maps")
def test_a_mapping_is_unmapped_with_the_last_array_on_it(session: Session) -> None:
    files = SegmentFiles(session)
    value = serialize(np.arange(20_000))
    files.write("segment", value.size, value, reused=False)
    files.close()
    path = session.path_of("segment")
    array = loads(memoryview(files.map("segment", value.size)))
    assert path in Path("/proc/self/maps").read_text()
    del array
    gc.collect()
    assert path not in Path("/proc/self/maps").read_text()


def test_what_a_reader_writes_is_its_own(session: Session) -> None:
    files = SegmentFiles(session)
    Path(session.path_of("segment")).write_bytes(b"value")
    first, second = files.map("segment", 5), files.map("segment", 5)
    first[:] = b"other"
    assert bytes(second) == Path(session.path_of("segment")).read_bytes() == b"value"


def test_a_file_that_is_too_short_is_not_mapped(session: Session) -> None:
    Path(session.path_of("segment")).write_bytes(b"value")
    with pytest.raises(ValueError, match=r"5 bytes|length is greater"):
        SegmentFiles(session).map("segment", 8192)


def test_a_mapping_that_fails_names_the_reason(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)  # a folder cannot be mapped
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENODEV)):
            map_file(SegmentMapping, descriptor, 1, private=True)
    finally:
        os.close(descriptor)


def test_warm_segments_are_unmapped_when_a_process_has_too_many_mappings(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skate._engine.local.session import shared_memory

    files = SegmentFiles(session)
    value = serialize(bytes(10))
    files.write("warm", value.size, value, reused=False)
    really_map = map_file

    def map_if_few(kind: type[mmap.mmap], descriptor: int, size: int, *, private: bool) -> mmap.mmap:
        if files._mine:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return really_map(kind, descriptor, size, private=private)

    monkeypatch.setattr(shared_memory, "map_file", map_if_few)
    mapping = files.map("warm", value.size)
    assert loads(memoryview(mapping)) == bytes(10)
    files.write("warm", value.size, value, reused=True)
    files.close()


def test_a_segment_on_disk_lies_among_the_spilled_objects(session: Session) -> None:
    files = SegmentFiles(session)
    value = serialize(np.arange(20_000))
    segment = segments.on_disk("1-1")
    files.write(segment, value.size, value, reused=False)
    assert os.listdir(session.spill) == ["1-1"]
    assert files._mine == {}
    assert loads(memoryview(files.map(segment, value.size)))[-1] == 19_999


# ---------------------------------------------------------------- the progress of a worker


def test_the_progress_of_a_worker_is_read_after_its_death(session: Session) -> None:
    TaskProgress(session, 7).begin(b"t" * 24, 2)
    assert last_begun(session, 7) == run_id(b"t" * 24, 2)
    assert last_begun(session, 7) == b""


@pytest.mark.linux_machine("it follows a link in /proc/self/fd")
def test_the_progress_of_a_worker_is_on_disk_when_shared_memory_is_full(full: Session) -> None:
    TaskProgress(full, 7).begin(b"t" * 24, 2)
    assert last_begun(full, 7) == run_id(b"t" * 24, 2)
    assert os.listdir(full.shm) == []
    assert "task-of-7" not in os.listdir(full.folder)


def test_the_progress_of_a_worker_is_unknown_when_the_disk_is_full_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(system, "reserve", refuse)
    TaskProgress(session, 7).begin(b"t" * 24, 2)
    assert last_begun(session, 7) is None
    assert last_begun(session, 7) == b""


# ---------------------------------------------------------------- the budget


def test_the_budget_fits_the_room_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_facts, "free_space", lambda _: 64 << 20)
    budget = machine_facts.store_budget(str(tmp_path), None)
    assert budget.size < 64 << 20
    assert "--shm-size" in budget.warning
    assert "SKATE_SHMDIR" in budget.warning
    assert machine_facts.store_budget(str(tmp_path), 10 << 20) == (10 << 20, "")
    monkeypatch.setattr(machine_facts, "free_space", lambda _: float("inf"))
    assert machine_facts.store_budget(str(tmp_path), 10 << 40) == (10 << 40, "")


# ---------------------------------------------------------------- sessions


@pytest.fixture
def small_store() -> Iterator[None]:
    skate.init(num_cpus=1, object_store_memory=4 << 20)
    yield
    skate.shutdown()


@skate.remote
def make(number: int) -> np.ndarray:
    return np.full(40_000, number)


@pytest.mark.usefixtures("small_store")
def test_descriptors_do_not_limit_objects() -> None:
    before = open_descriptors()
    results = [make.remote(number) for number in range(MANY // 2)]
    puts = [skate.put(np.full(40_000, number)) for number in range(MANY // 2)]
    arrays = skate.get(results + puts)  # more than the store holds, all of it mapped
    assert [array[-1] for array in arrays] == 2 * list(range(MANY // 2))
    assert open_descriptors() < before + 20
    assert skate.available_resources().get("object_store_memory", 0) < 4 << 20


@pytest.mark.usefixtures("small_store")
def test_a_disk_that_takes_nothing_is_an_error_that_names_who_maps_the_store() -> None:
    from skate._engine.holder import current

    kept = [skate.get(skate.put(bytes(3 << 20)))]
    kept.append(skate.get(skate.put(np.zeros(3 << 20, dtype=np.uint8))))
    spill = Path(current().client.session, "spill")
    for path in spill.iterdir():
        path.unlink()
    spill.rmdir()
    spill.write_bytes(b"")  # nothing can be written there
    with pytest.raises(skate.exceptions.OutOfDiskError, match=r"mapped by the driver \(pid \d+\)"):
        kept.append(skate.put(np.ones(3 << 20, dtype=np.uint8)))
    assert skate.get(skate.put(1)) == 1
    spill.unlink()


def test_the_limit_of_open_files_is_raised_and_named(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import os, resource
import numpy as np, skate, skate.exceptions

@skate.remote
def limit():
    return resource.getrlimit(resource.RLIMIT_NOFILE)

skate.init(num_cpus=1)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == skate.get(limit.remote()) == (200, 200)
ref = skate.put(np.zeros(40_000))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for use in (lambda: skate.get(ref), lambda: skate.put(np.ones(40_000))):
    try:
        use()
    except skate.exceptions.RaySystemError as error:
        assert "limit is 200 (`ulimit -n`)" in str(error), error
    else:
        raise AssertionError("there was no error")
for descriptor in held:
    os.close(descriptor)
assert len(skate.get(ref)) == 40_000
skate.shutdown()
"""
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))

    done = subprocess.run(
        [sys.executable, str(program)], preexec_fn=limit, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_limit_that_is_high_enough_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changed.append(limits))
    for limits in ((100_000, 200_000), (4096, 4096), (-1, -1)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        open_files.raise_limit()
    assert changed == []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, -1))
    open_files.raise_limit()
    assert changed == [(open_files.ENOUGH, -1)]
