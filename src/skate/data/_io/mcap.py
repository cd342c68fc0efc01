"""Datasource for MCAP files, which hold timestamped messages of robots."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _optional
from skate.data._block import rows
from skate.data._io import paths
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.exceptions import FileReadError

_MESSAGES_AT_A_TIME = 10_000


@dataclass
class TimeRange:
    """A range of log times.

    Attributes:
        start_time: First nanosecond of the range.
        end_time: End of the range, exclusive.

    >>> TimeRange(0, 1_000_000_000)
    TimeRange(start_time=0, end_time=1000000000)
    """

    start_time: int
    end_time: int

    def __post_init__(self) -> None:
        if self.start_time < 0 or self.end_time < 0:
            raise ValueError(f"time values must be non-negative, in nanoseconds, not {self}")
        if self.start_time >= self.end_time:
            raise ValueError(f"start_time must be less than end_time, not {self}")


class MCAPDatasource(FileBasedDatasource):
    """Read the messages of MCAP files, in the order of their log times.

    The payload of a message stays as bytes in the column `data`, except that JSON messages are decoded.

    Args:
        paths: Files, folders, globs or URIs.
        topics: Read only messages of these topics.
        time_range: Read only messages that were logged in this range.
        message_types: Read only messages whose schema has one of these names.
        include_metadata: Add columns that describe the channel and schema of a message.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "MCAP"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = ["mcap"]

    def __init__(
        self,
        paths: paths.Paths,
        topics: Collection[str] | None = None,
        time_range: TimeRange | None = None,
        message_types: Collection[str] | None = None,
        include_metadata: bool = True,
        **file_args: Any,
    ) -> None:
        _optional.load("mcap", "read_mcap")
        self._topics = sorted(topics) if topics else None
        self._time_range = time_range
        self._message_types = frozenset(message_types) if message_types else None
        self._include_metadata = include_metadata
        super().__init__(paths, **file_args)

    def _open_input_source(self, filesystem: pafs.FileSystem, path: str, **open_args: Any) -> pa.NativeFile:
        return filesystem.open_input_file(path)  # the index is at the end

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        exceptions = _optional.load("mcap.exceptions", "read_mcap")
        messages = self._messages(f)
        try:
            while found := list(itertools.islice(messages, _MESSAGES_AT_A_TIME)):
                yield rows.to_block_with_objects(found)
        # The library raises these for records with wrong lengths.
        except (exceptions.McapError, ValueError, LookupError, OverflowError, MemoryError) as error:
            raise FileReadError("MCAP", path, str(error) or type(error).__name__) from error

    def _messages(self, file: pa.NativeFile) -> Iterator[dict[str, Any]]:
        reader = _optional.load("mcap.reader", "read_mcap").make_reader(file)
        times: dict[str, int] = {}
        if self._time_range is not None:
            known = inspect.signature(reader.iter_messages).parameters
            names = ("starting_at", "ending_before") if "starting_at" in known else ("start_time", "end_time")
            times = dict(zip(names, (self._time_range.start_time, self._time_range.end_time), strict=True))
        for schema, channel, message in reader.iter_messages(topics=self._topics, **times):
            name = None if schema is None else schema.name
            if self._message_types is not None and name not in self._message_types:
                continue
            row = {
                "data": _decode(message.data, channel.message_encoding),
                "topic": channel.topic,
                "log_time": message.log_time,
                "publish_time": message.publish_time,
                "sequence": message.sequence,
            }
            if self._include_metadata:
                row |= {
                    "channel_id": message.channel_id,
                    "message_encoding": channel.message_encoding,
                    "schema_name": name,
                    "schema_encoding": None if schema is None else schema.encoding,
                    "schema_data": None if schema is None else schema.data,
                }
            yield row


def _decode(data: bytes, encoding: str) -> Any:
    if encoding != "json":
        return data
    try:
        return json.loads(data)
    except ValueError:
        return data
