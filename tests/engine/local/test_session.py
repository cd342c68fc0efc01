from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

import pytest

from skate._engine.common import session_folders, session_roots
from skate._engine.local.session import folders as session
from skate._engine.local.wire import unix_sockets


@pytest.fixture(autouse=True)
def _own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_TMPDIR", str(tmp_path))
    monkeypatch.setattr(session_roots, "SHM", str(tmp_path / "shm"))
    (tmp_path / "shm").mkdir()


def folders_of(made: session.Session) -> list[str]:
    return [path for path in (made.folder, made.shm) if os.path.isdir(path)]


def test_folders_are_for_their_user_alone() -> None:
    made = session.create()
    for folder in (made.folder, made.shm, os.path.dirname(made.folder)):
        assert os.stat(folder).st_mode & 0o777 == 0o700
    made.close()


def test_the_folder_of_all_sessions_loses_the_rights_of_others(tmp_path: Path) -> None:
    root = tmp_path / f"skate-{os.getuid()}"
    root.mkdir()
    root.chmod(0o777)
    assert session.root() == str(root)
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_living_session_is_not_swept() -> None:
    made = session.create()
    session.lock(made, {})
    session.sweep()
    assert folders_of(made) == [made.folder, made.shm]
    made.close()


def test_a_dead_session_is_swept_with_its_memory() -> None:
    made = session.create()
    session.lock(made, {})
    made.close()
    Path(made.shm, "segment").write_bytes(b"left")
    session.sweep()
    assert folders_of(made) == []
    assert os.listdir(session.shm_root()) == []


def test_a_session_that_is_starting_is_not_swept() -> None:
    made = session.create()  # its node does not run yet
    session.sweep()
    assert folders_of(made) == [made.folder, made.shm]
    made.close()


def test_a_session_whose_maker_died_before_its_node_ran_is_swept() -> None:
    made = session.create()
    made.close()
    session.sweep()
    assert folders_of(made) == []


def test_a_session_whose_memory_lies_with_its_files_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_roots, "SHM", "/nowhere")
    made = session.create()
    assert os.path.dirname(made.shm) == made.folder
    session.sweep()
    assert folders_of(made) == [made.folder, made.shm]
    made.close()
    session.sweep()
    assert folders_of(made) == []


def test_memory_is_spared_while_it_is_claimed_though_its_session_folder_cannot_be_seen() -> None:
    made = session.create()
    shutil.move(made.folder, made.folder + "-elsewhere")  # as in another mount namespace
    session.sweep()
    assert folders_of(made) == [made.shm]
    made.close()
    session.sweep()
    assert folders_of(made) == []


def test_files_are_spared_while_they_are_claimed_though_their_memory_cannot_be_seen() -> None:
    made = session.create()
    shutil.rmtree(made.shm)
    session.sweep()
    assert folders_of(made) == [made.folder]
    made.close()
    session.sweep()
    assert folders_of(made) == []


def test_a_folder_without_a_lock_is_not_swept() -> None:
    """Earlier versions claimed no shared memory, so nothing proves that their sessions are dead."""
    name = "session-20260101-000000-1-abcdef"
    old = [
        Path(session.shm_root(), name),
        Path(session.shm_root(), f"new-{name}"),
        Path(session.root(), "inline-1-a"),
    ]
    for folder in old:
        folder.mkdir()
        os.symlink("/nowhere", folder / ".session")
        os.utime(folder, (0, 0))
    session.sweep()
    assert [folder.exists() for folder in old] == [True] * 3


def test_a_folder_whose_maker_died_before_it_had_a_lock_is_swept() -> None:
    draft = Path(session.root(), f"{session_folders.DRAFT}0-session-x")
    draft.mkdir()
    session.sweep()
    assert not draft.exists()


def test_a_maker_whose_draft_is_swept_makes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder, swept = os.mkdir, []

    def sweep_after(path: str, *arguments: int) -> None:
        make_folder(path, *arguments)
        if session_folders.DRAFT in path and len(swept) < 2:
            swept.append(path)
            session.sweep()

    monkeypatch.setattr(os, "mkdir", sweep_after)
    made = session.create()
    assert len(swept) == 2
    assert folders_of(made) == [made.folder, made.shm]
    assert session.is_alive(made.folder)
    made.close()


def test_a_deletion_that_was_cut_short_is_finished() -> None:
    made = session.create()
    made.close()
    os.rename(made.shm, os.path.join(session.shm_root(), session_folders.GONE + os.path.basename(made.shm)))
    assert made.is_left
    session.sweep()
    assert not made.is_left
    assert os.listdir(session.shm_root()) == []


@pytest.mark.linux_layer("processes have namespaces")
def test_a_node_is_known_by_its_listener_and_not_by_its_number() -> None:
    made = session.create()
    session.lock(made, {"pid": 1})  # a pid of another namespace, which exists in this one too
    assert session.about(made.folder) is None  # it does not listen yet
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        unix_sockets.bind(listener, made.socket)
        listener.listen()
        assert session.about(made.folder) == {"pid": os.getpid()}
    assert session.about(made.folder) is None  # a process that was forked may still have the claim
    made.close()
