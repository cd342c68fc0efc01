"""Event files, decoded with tensorboardX."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from skate.train._views.tensorboard import Events

event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
crc32c = pytest.importorskip("google_crc32c")


def masked(data: bytes) -> int:
    value: int = crc32c.value(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events_in(folder: Path) -> list[Any]:
    """Return all events of a folder, after their checksums."""
    found = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        content = file.read_bytes()
        while content:
            (size, head) = struct.unpack("<QI", content[:12])
            payload, (tail,) = content[12 : 12 + size], struct.unpack("<I", content[12 + size : 16 + size])
            assert (head, tail) == (masked(content[:8]), masked(payload))
            found.append(event_pb2.Event.FromString(payload))
            content = content[16 + size :]
    return found


def scalars(event: Any) -> dict[str, float]:
    return {value.tag: value.simple_value for value in event.summary.value}


def test_an_event_file_says_what_was_noted(tmp_path: Path) -> None:
    events = Events(pafs.LocalFileSystem(), str(tmp_path / "run"))
    events.add(0, 12.5, {"loss": 0.5, "eval/accuracy": 1.0})
    events.add(300, 13.5, {"loss": -2.0, "größe": 3.0})
    events.close()
    head, first, second = events_in(tmp_path / "run")
    assert head.file_version == "brain.Event:2"
    assert (first.step, first.wall_time) == (0, 12.5)
    assert scalars(first) == {"loss": 0.5, "eval/accuracy": 1.0}
    assert (second.step, second.wall_time) == (300, 13.5)
    assert scalars(second) == {"loss": -2.0, "größe": 3.0}


def test_numbers_that_no_float_of_32_bits_can_hold_are_written_as_what_comes_nearest(tmp_path: Path) -> None:
    events = Events(pafs.LocalFileSystem(), str(tmp_path))
    events.add(0, 0.0, {"large": 1e300, "small": -1e300, "none": math.nan})
    events.close()
    found = scalars(events_in(tmp_path)[1])
    assert (found["large"], found["small"]) == (math.inf, -math.inf)
    assert math.isnan(found["none"])


def test_what_is_flushed_can_be_read_before_the_end(tmp_path: Path) -> None:
    events = Events(pafs.LocalFileSystem(), str(tmp_path))
    events.add(0, 0.0, {"loss": 1.0})
    events.flush()
    assert len(events_in(tmp_path)) == 2
    events.add(1, 0.0, {"loss": 0.5})
    events.close()
    assert [event.step for event in events_in(tmp_path)] == [0, 0, 1]


def test_a_store_that_cannot_append_gets_the_whole_file(tmp_path: Path) -> None:
    remote = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    events = Events(remote, "bucket/run")
    for step in range(3):
        events.add(step, 0.0, {"loss": 1.0})
        events.flush()
    events.close()
    assert [event.step for event in events_in(tmp_path / "bucket" / "run")] == [0, 0, 1, 2]
