from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from skate._engine.local import session


@pytest.fixture(autouse=True)
def _own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_TMPDIR", str(tmp_path))
    monkeypatch.setattr(session, "SHM", str(tmp_path / "shm"))
    (tmp_path / "shm").mkdir()


def test_folders_are_for_their_user_alone() -> None:
    made = session.create()
    for folder in (made.folder, made.shm, os.path.dirname(made.folder)):
        assert os.stat(folder).st_mode & 0o777 == 0o700
    os.close(made.claim)


def test_the_folder_of_all_sessions_loses_the_rights_of_others(tmp_path: Path) -> None:
    root = tmp_path / f"skate-{os.getuid()}"
    root.mkdir()
    root.chmod(0o777)
    assert session.root() == str(root)
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_living_session_is_not_swept() -> None:
    made = session.create()
    descriptor = session.lock(made, {})
    session.sweep()
    assert os.path.isdir(made.folder)
    os.close(descriptor)


def test_a_dead_session_is_swept_with_its_memory() -> None:
    made = session.create()
    os.close(session.lock(made, {}))
    Path(made.shm, "segment").write_bytes(b"left")
    session.sweep()
    assert not os.path.exists(made.folder)
    assert not os.path.exists(made.shm)


def test_a_session_that_is_starting_is_not_swept() -> None:
    made = session.create()  # its node does not run yet
    session.sweep()
    assert os.path.isdir(made.folder)
    os.close(made.claim)


def test_a_session_whose_maker_died_before_its_node_ran_is_swept() -> None:
    made = session.create()
    os.close(made.claim)
    session.sweep()
    assert not os.path.exists(made.folder)
    assert not os.path.exists(made.shm)


def test_a_session_that_is_being_made_is_not_swept_unless_it_is_old() -> None:
    folder = Path(session.root(), session.DRAFT + "session-x")
    folder.mkdir()
    session.sweep()
    assert folder.exists()
    os.utime(folder, (0, 0))
    session.sweep()
    assert not folder.exists()


def test_memory_without_a_session_is_swept() -> None:
    made = session.create()
    os.close(made.claim)
    shutil.rmtree(made.folder)
    session.sweep()
    assert not os.path.exists(made.shm)
