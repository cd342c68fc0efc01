"""Where sessions have their folders, also if another user or a mount prevents the usual ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skate._engine.common import session_roots

NAME = f"skate-{os.getuid()}"
ANOTHER_USER = 54321


@pytest.fixture(params=["SKATE_TMPDIR", "SKATE_SHMDIR"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A variable, whose folder is the test's own."""
    monkeypatch.setenv(request.param, str(tmp_path))
    variable: str = request.param
    return variable


def root(variable: str) -> str:
    return {"SKATE_TMPDIR": session_roots.root, "SKATE_SHMDIR": session_roots.shm_root}[variable]()


def squat_with_a_file(path: Path) -> None:
    path.write_text("")


def squat_with_a_link(path: Path) -> None:
    path.symlink_to("/nowhere")


def squat_as_another_user(path: Path) -> None:
    path.mkdir(mode=0o777)
    os.chown(path, ANOTHER_USER, ANOTHER_USER)


def squat_with_a_link_of_another_user(path: Path) -> None:
    target = path.with_name("target")
    target.mkdir(exist_ok=True)
    path.symlink_to(target)
    os.chown(path, ANOTHER_USER, ANOTHER_USER, follow_symlinks=False)


SQUATTERS = [
    squat_with_a_file,
    squat_with_a_link,
    pytest.param(squat_as_another_user, marks=pytest.mark.skipif(os.getuid() != 0, reason="needs root")),
    pytest.param(
        squat_with_a_link_of_another_user,
        marks=pytest.mark.skipif(os.getuid() != 0, reason="needs root"),
    ),
]


@pytest.mark.parametrize("squat", SQUATTERS)
def test_another_name_is_used_where_the_usual_one_is_taken(
    place: str, tmp_path: Path, squat: Callable[[Path], None]
) -> None:
    squat(tmp_path / NAME)
    assert root(place) == root(place) == str(tmp_path / f"{NAME}-1")
    assert os.stat(root(place)).st_mode & 0o777 == 0o700


def test_the_variable_is_named_where_all_names_are_taken(place: str, tmp_path: Path) -> None:
    for name in (NAME, *(f"{NAME}-{number}" for number in range(1, 10))):
        squat_with_a_file(tmp_path / name)
    with pytest.raises(session_roots.UnusableFolderError, match=f"Set {place} to a folder"):
        root(place)


def test_a_folder_that_others_could_enter_is_closed_to_them(place: str, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir(mode=0o755)
    assert os.stat(root(place)).st_mode & 0o777 == 0o700


def test_a_link_of_ones_own_is_followed(place: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    assert root(place) == str(tmp_path / NAME)


def test_a_folder_that_does_not_exist_is_created(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place, "a/b")
    monkeypatch.chdir(tmp_path)
    assert root(place) == str(tmp_path / "a" / "b" / NAME)


@pytest.mark.parametrize("folder", ["/proc", "/proc/nowhere", __file__, f"{__file__}/below"])
def test_a_folder_that_cannot_be_used_is_named_with_its_variable(
    place: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place, folder)
    with pytest.raises(session_roots.UnusableFolderError, match=f"cannot use {folder}.*Set {place} to"):
        root(place)


@pytest.mark.parametrize("folder", ["/nowhere", __file__])
def test_a_temporary_folder_of_the_system_that_is_unusable_is_replaced(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKATE_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", folder)
    assert os.access(session_roots.root(), os.W_OK)
