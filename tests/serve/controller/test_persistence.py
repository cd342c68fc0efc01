"""What the controller stores, when, and how a restarted controller reads it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import skate
from skate.exceptions import ActorDiedError
from skate.serve._controller.persistence import STORAGE_ACTOR_NAME, ActorStorage, FolderStorage, StateStore
from skate.serve._controller.records import FORMAT, ApplicationRecord, ControllerRecord, decode, encode
from skate.serve._runtime.ids import NAMESPACE


class Target:
    """Something that should run: what is large, and what changes."""

    def __init__(self) -> None:
        self.specs: list[Any] = []
        self.build_error = ""

    def record(self, key_of: Callable[[Any], str]) -> ControllerRecord:
        parts = [key_of(spec) for spec in self.specs]
        return ControllerRecord([ApplicationRecord("", parts, {}, 0.0, False, False, self.build_error)])


class Counting(FolderStorage):
    """Counts what is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.writes: list[Mapping[str, bytes | None]] = []

    async def write(self, pages: Mapping[str, bytes | None]) -> None:
        self.writes.append(pages)
        await super().write(pages)


async def test_another_controller_reads_what_one_has_written(tmp_path: Path) -> None:
    target = Target()
    target.specs = [{"code": b"1"}, {"code": b"2"}]
    target.build_error = "none"
    store = StateStore(FolderStorage(tmp_path), target.record)
    record, _ = await store.open()
    assert record == ControllerRecord()
    await store.flush()
    record, load_object = await StateStore(FolderStorage(tmp_path), target.record).open()
    (app,) = record.applications
    assert app.build_error == "none"
    assert [load_object(key) for key in app.parts] == target.specs


async def test_what_is_large_is_written_once_and_removed_when_nothing_names_it(tmp_path: Path) -> None:
    target, storage = Target(), Counting(tmp_path)
    target.specs = [{"code": b"1"}]
    store = StateStore(storage, target.record)
    await store.open()
    await store.flush()
    (key,) = storage.writes[0].keys() - {"record"}
    target.build_error = "another"
    await store.flush()
    assert list(storage.writes[1]) == ["record"]
    target.specs = [{"code": b"2"}]
    await store.flush()
    assert storage.writes[2][key] is None
    assert await storage.open() == {
        name: data for name, data in storage.writes[2].items() if data is not None
    }


async def test_a_reader_goes_on_with_the_keys_that_it_has_read(tmp_path: Path) -> None:
    target = Target()
    target.specs = [{"code": b"1"}]
    store = StateStore(FolderStorage(tmp_path), target.record)
    await store.open()
    await store.flush()
    storage, recovered = Counting(tmp_path), Target()
    store = StateStore(storage, recovered.record)
    record, load_object = await store.open()
    recovered.specs = [load_object(key) for key in record.applications[0].parts]
    await store.flush()
    assert storage.writes == []
    recovered.build_error = "new"
    await store.flush()
    assert [list(pages) for pages in storage.writes] == [["record"]]


async def test_changes_of_one_turn_are_written_together(tmp_path: Path) -> None:
    target, storage = Target(), Counting(tmp_path)
    store = StateStore(storage, target.record)
    await store.open()
    for number in range(10):
        target.build_error = str(number)
        store.mark_changed()
    await store.flush()
    assert len(storage.writes) == 1
    assert decode(storage.writes[0]["record"] or b"").applications[0].build_error == "9"


async def test_whoever_waits_learns_that_writing_failed(tmp_path: Path) -> None:
    target = Target()
    store = StateStore(FolderStorage(tmp_path / "made"), target.record)
    await store.open()
    (tmp_path / "made").rmdir()
    with pytest.raises(FileNotFoundError):
        await store.flush()
    (tmp_path / "made").mkdir()
    await store.flush()
    assert (tmp_path / "made" / "record").exists()


async def test_a_note_that_was_being_written_when_the_process_ended_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "record.new").write_bytes(b"half")
    record, _ = await StateStore(FolderStorage(tmp_path), Target().record).open()
    assert record == ControllerRecord()


async def test_nothing_is_left_after_the_end(tmp_path: Path) -> None:
    store = StateStore(FolderStorage(tmp_path / "made"), Target().record)
    await store.open()
    await store.flush()
    await store.close()
    store.mark_changed()
    await asyncio.sleep(0)
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("engine")
async def test_pages_of_an_actor_outlive_the_controller_and_the_actor() -> None:
    async def found() -> dict[str, bytes]:
        """Return what is in the actor; nothing where there is none just now."""
        try:
            pages: dict[str, bytes] = await skate.get_actor(STORAGE_ACTOR_NAME, NAMESPACE).read.remote()
        except (ValueError, ActorDiedError):
            return {}
        return pages

    storage = ActorStorage()
    assert await storage.open() == {}
    await storage.write({"1": b"one", "2": b"two"})
    await storage.write({"1": None, "3": b"three"})
    assert await found() == {"2": b"two", "3": b"three"}
    storage = ActorStorage()
    assert await storage.open() == await found()
    skate.kill(skate.get_actor(STORAGE_ACTOR_NAME, NAMESPACE))
    async with asyncio.timeout(60):
        while True:
            if await found() == {"2": b"two", "3": b"three"}:
                break
            await asyncio.sleep(0.01)  # nobody tells when a name comes to exist
    await storage.close()
    assert await found() == {}


def test_what_another_version_wrote_is_refused() -> None:
    other = msgspec.msgpack.encode({"format": FORMAT + 1, "applications": "otherwise"})
    with pytest.raises(
        RuntimeError, match=f"format {FORMAT + 1}, but this version of Skate reads format {FORMAT}"
    ):
        decode(other)
    assert decode(encode(ControllerRecord(target_capacity=50.0))).target_capacity == 50.0
