from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import skate
from skate.data._io.mcap import MCAPDatasource, TimeRange
from skate.data.exceptions import FileReadError
from tests.data.io.support import read_rows

pytest.importorskip("mcap")
SECOND = 1_000_000_000


def make(path: Path, start: int = 0) -> str:
    """Write a file with five JSON messages of one topic and five binary ones of another, a second apart."""
    from mcap.writer import CompressionType, Writer

    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start()
        pose = writer.register_schema(name="Pose", encoding="jsonschema", data=b'{"type": "object"}')
        poses = writer.register_channel(topic="/pose", message_encoding="json", schema_id=pose)
        raws = writer.register_channel(topic="/raw", message_encoding="raw", schema_id=0)
        for number in range(start, start + 5):
            time = number * SECOND
            writer.add_message(poses, time, json.dumps({"x": number}).encode(), time + 1, number)
            writer.add_message(raws, time, bytes([number]), time, number)
        writer.finish()
    return str(path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return make(tmp_path / "a.mcap")


def test_messages_are_read_with_their_times_and_schemas(path: str) -> None:
    rows = read_rows(MCAPDatasource(path, topics=["/pose"]))
    assert [row["data"] for row in rows] == [{"x": number} for number in range(5)]
    assert rows[1] == {
        "data": {"x": 1},
        "topic": "/pose",
        "log_time": SECOND,
        "publish_time": SECOND + 1,
        "sequence": 1,
        "channel_id": 1,
        "message_encoding": "json",
        "schema_name": "Pose",
        "schema_encoding": "jsonschema",
        "schema_data": b'{"type": "object"}',
    }


def test_bytes_stay_bytes_and_a_message_may_have_no_schema(path: str) -> None:
    rows = read_rows(MCAPDatasource(path, topics={"/raw"}, include_metadata=False))
    assert [row["data"] for row in rows] == [bytes([number]) for number in range(5)]
    assert list(rows[0]) == ["data", "topic", "log_time", "publish_time", "sequence"]
    [first, *_] = read_rows(MCAPDatasource(path, topics={"/raw"}))
    assert first["schema_name"] is None


def test_messages_of_several_encodings_share_a_column(path: str) -> None:
    assert [row["data"] for row in read_rows(MCAPDatasource(path))][:2] == [{"x": 0}, b"\0"]


def test_times_and_types_choose_messages(path: str) -> None:
    chosen = MCAPDatasource(path, topics=["/raw"], time_range=TimeRange(SECOND, 3 * SECOND))
    assert [row["sequence"] for row in read_rows(chosen)] == [1, 2]
    assert {row["topic"] for row in read_rows(MCAPDatasource(path, message_types={"Pose"}))} == {"/pose"}


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        ((5, 5), r"start_time must be less than end_time, not TimeRange\(start_time=5"),
        ((-1, 5), r"must be non-negative, in nanoseconds, not TimeRange\(start_time=-1"),
    ],
)
def test_a_time_range_is_checked(times: tuple[int, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        skate.data.read_mcap("x.mcap", time_range=times)


def test_a_folder_is_read_by_a_task_for_each_file(tmp_path: Path) -> None:
    make(tmp_path / "a.mcap")
    make(tmp_path / "b.mcap", 5)
    (tmp_path / "notes.txt").write_text("left out")
    assert len(MCAPDatasource(str(tmp_path)).get_read_tasks(2)) == 2
    found = skate.data.read_mcap(
        str(tmp_path), topics=["/pose"], time_range=(0, 7 * SECOND), include_paths=True
    )
    rows = found.take_all()
    assert [row["data"]["x"] for row in rows] == list(range(7))
    assert [Path(row["path"]).name for row in rows] == ["a.mcap"] * 5 + ["b.mcap"] * 2


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"no magic" + data[8:]])
def test_a_damaged_file_is_named(path: str, damage: Any) -> None:
    Path(path).write_bytes(damage(Path(path).read_bytes()))
    with pytest.raises(FileReadError, match=r"a\.mcap"):
        read_rows(MCAPDatasource(path))
