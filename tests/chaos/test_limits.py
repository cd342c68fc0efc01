"""Few open files, little shared memory, a small disk: programs work, or get errors that say why, and leave nothing."""

from __future__ import annotations

import pytest

from tests.chaos import attacks
from tests.chaos.arena import Arena

PROGRAM_TIMEOUT_S = 300.0  # the slowest take a minute on a busy machine


def run(arena: Arena, **limits: object) -> tuple[str, str]:
    """Run the program with limits; return its report and its output."""
    attacks.record()
    driver = arena.start("limited.py", *(f"{name}={value}" for name, value in limits.items()))
    code = driver.wait(PROGRAM_TIMEOUT_S)
    text = driver.report()
    if text == "no namespaces\n":
        pytest.skip("this user may not mount file systems in a namespace of its own")
    assert code == 0, driver.output()[-6000:]
    assert text.endswith("over\n"), driver.output()[-6000:]
    driver.assert_nothing_left()
    return text, driver.output()


def test_a_program_works_with_hardly_any_shared_memory_and_few_files(arena: Arena) -> None:
    _, output = run(arena, shm="1m", files=128, work="brief")
    assert output.count("--shm-size") == 1
    assert "SKATE_SHMDIR" in output


def test_a_full_disk_is_an_error_and_the_session_works_on(arena: Arena) -> None:
    report, _ = run(arena, shm="8m", disk="12m", work="fill_the_disk")
    assert "full after" in report
    assert "SKATE_TMPDIR" in report
    assert "a task was told" in report


@pytest.mark.chaos
@pytest.mark.timeout(PROGRAM_TIMEOUT_S)
@pytest.mark.parametrize("size", ["64m", "16m", "1m"])
def test_a_program_works_with_little_shared_memory(arena: Arena, size: str) -> None:
    run(arena, shm=size, work="mixed")


@pytest.mark.chaos
@pytest.mark.timeout(PROGRAM_TIMEOUT_S)
@pytest.mark.parametrize("files", ["1024:1024", "256:256", "256:4096"])
def test_a_program_works_with_few_open_files(arena: Arena, files: str) -> None:
    run(arena, files=files, work="mixed")


@pytest.mark.chaos
@pytest.mark.timeout(PROGRAM_TIMEOUT_S)
def test_a_program_works_while_another_one_fills_shared_memory(arena: Arena) -> None:
    report, _ = run(arena, shm="16m", work="crowded")
    assert report.count("shared memory is full") == 2


@pytest.mark.chaos
@pytest.mark.timeout(PROGRAM_TIMEOUT_S)
def test_actors_for_which_there_are_no_files_fail_with_the_limit(arena: Arena) -> None:
    report, _ = run(arena, files=256, work="many_actors")
    assert "ActorDiedError" in report
    assert "limit is 256" in report


@pytest.mark.chaos
@pytest.mark.timeout(PROGRAM_TIMEOUT_S)
@pytest.mark.parametrize("disk", ["4m", "40m"])
def test_disks_of_any_size_fill_up_with_an_error(arena: Arena, disk: str) -> None:
    run(arena, shm="8m", disk=disk, work="fill_the_disk")
