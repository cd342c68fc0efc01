"""Read the rows of LeRobot datasets, with the frames of cameras and windows of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skate.data._block import tensors
from skate.data._block.kinds import is_list
from skate.data._io.lerobot_frames import Frame, VideoFrames, decode_image, frame_column
from skate.data._io.lerobot_metadata import LeRobotRoot, read_parquet
from skate.data._io.lerobot_segments import Segment
from skate.data.exceptions import FileReadError

# Columns that no file holds.
ADDED = ("task", "dataset_index", "stats")
# Columns that locate the frames and the task of a row.
KEYS = ("index", "episode_index", "timestamp", "task_index")

Steps = Mapping[str, npt.NDArray[np.int64]]


class SegmentReader:
    """Read the rows of a segment, and the frames of some of them at a time."""

    def __init__(
        self,
        root: LeRobotRoot,
        segment: Segment,
        steps: Steps,
        tolerance: float | None,
        columns: Sequence[str],
    ) -> None:
        self._root = root
        self._segment = segment
        self._steps = steps
        self._tolerance = 0.5 / root.fps if tolerance is None else tolerance
        self._columns = columns
        self._pads = {f"{name}_is_pad": name for name in steps}
        self._rows = self._read_rows()
        episodes = {episode.number: episode for episode in segment.episodes}
        numbers = self._rows.column("episode_index").to_pylist()
        unknown = sorted(set(numbers) - set(episodes))
        if unknown:
            raise self._error(f"it has rows of the episodes {unknown}, which the metadata places elsewhere")
        self._episodes = [episodes[number] for number in numbers]
        self._bounds = np.array([(each.start, each.stop) for each in self._episodes]).reshape(-1, 2)
        self._times = self._rows.column("timestamp").to_numpy()
        self._values: dict[str, npt.NDArray[Any]] = {}
        self._videos: dict[str, VideoFrames] = {}

    def close(self) -> None:
        """Close the videos."""
        for video in self._videos.values():
            video.close()

    def block(self, start: int, stop: int) -> pa.Table:
        """Return some of the rows, which are counted from the start of the segment."""
        rows = self._rows.slice(start, stop - start)
        columns = {}
        for name in self._columns:
            if name in self._pads:
                columns[name] = tensors.from_ndarray(self._places(self._pads[name], start, stop)[1])
            elif name in self._root.videos:
                columns[name] = self._frames(name, start, stop, self._decode_video)
            elif name in self._root.images:
                columns[name] = self._frames(name, start, stop, self._decode_images)
            elif name in self._steps:
                columns[name] = tensors.from_ndarray(self._window(name)[self._places(name, start, stop)[0]])
            elif name in ADDED:
                columns[name] = self._added(name, rows)
            else:
                columns[name] = rows.column(name)
        return pa.table(columns)

    def _read_rows(self) -> pa.Table:
        root, segment = self._root, self._segment
        made = {*ADDED, *self._pads, *root.videos}
        names = dict.fromkeys([*(name for name in self._columns if name not in made), *KEYS])
        within = (pc.field("index") >= segment.start) & (pc.field("index") < segment.stop)
        parts = [
            read_parquet(root.filesystem, root.locate(file), list(names), within) for file in segment.data
        ]
        rows = pa.concat_tables([_without_library_types(part) for part in parts]).combine_chunks()
        if not self._is_complete(rows):
            rows = rows.sort_by("index")
        if not self._is_complete(rows):
            raise self._incomplete(rows)
        return rows

    def _is_complete(self, rows: pa.Table) -> bool:
        expected = np.arange(self._segment.start, self._segment.stop)
        return np.array_equal(rows.column("index").to_numpy(), expected)

    def _incomplete(self, rows: pa.Table) -> FileReadError:
        index = rows.column("index").to_numpy()
        for episode in self._segment.episodes:
            start, stop = max(episode.start, self._segment.start), min(episode.stop, self._segment.stop)
            found = int(((index >= start) & (index < stop)).sum())
            if found != stop - start:
                reason = f"it holds {found} of the {stop - start} rows of episode {episode.number}"
                return FileReadError("Parquet", self._root.locate(episode.data), reason)
        return self._error("the column `index` holds a number more than once")

    def _error(self, reason: str) -> FileReadError:
        files = ", ".join(self._root.locate(file) for file in self._segment.data)
        return FileReadError("Parquet", files, reason)

    def _added(self, name: str, rows: pa.Table) -> pa.Array:
        if name == "dataset_index":
            return pa.array(np.full(rows.num_rows, self._segment.root, np.int32))
        if name == "stats":
            places = pa.array(np.zeros(rows.num_rows, np.int32))
            return pa.DictionaryArray.from_arrays(places, pa.array([self._root.stats]))
        numbers = rows.column("task_index").to_pylist()
        unknown = sorted(set(numbers) - set(self._root.tasks))
        if unknown:
            raise self._error(f"it has rows of the tasks {unknown}, which the metadata of tasks lacks")
        texts = pa.array([self._root.tasks[number] for number in numbers], pa.string())
        return texts.dictionary_encode()

    def _places(
        self, name: str, start: int, stop: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return which rows of the segment the windows of a feature hold, and which of them are padding."""
        wanted = np.arange(start, stop)[:, None] + self._segment.start + self._steps[name]
        low, high = self._bounds[start:stop, :1], self._bounds[start:stop, 1:]
        return np.clip(wanted, low, high - 1) - self._segment.start, (wanted < low) | (wanted >= high)

    def _window(self, name: str) -> npt.NDArray[Any]:
        """Return the values of a feature in all rows."""
        if name not in self._values:
            try:
                self._values[name] = _to_ndarray(self._rows.column(name).combine_chunks())
            except ValueError as error:
                raise self._error(f"the column {name!r} cannot be read in windows: {error}") from error
        return self._values[name]

    def _frames(self, name: str, start: int, stop: int, decode: Any) -> pa.Array:
        places = self._places(name, start, stop)[0] if name in self._steps else np.arange(start, stop)
        needed, inverse = np.unique(places, return_inverse=True)
        return frame_column(decode(name, needed.tolist()), inverse.reshape(places.shape))

    def _decode_images(self, name: str, places: list[int]) -> list[Frame]:
        cells, root = self._rows.column(name), self._root
        file = ", ".join(root.locate(file) for file in self._segment.data)
        return [
            decode_image(cells[place].as_py(), name, root.filesystem, root.path, file) for place in places
        ]

    def _decode_video(self, name: str, places: list[int]) -> list[Frame]:
        by_file: dict[str, list[tuple[float, int]]] = {}
        for number, place in enumerate(places):
            clip = self._episodes[place].clips[name]
            by_file.setdefault(clip.file, []).append((clip.start + float(self._times[place]), number))
        found: dict[int, Frame] = {}
        for file, requests in by_file.items():
            if file not in self._videos:
                path = self._root.locate(file)
                self._videos[file] = VideoFrames(self._root.filesystem, path, self._tolerance)
            ordered = sorted(requests)
            frames = self._videos[file].read([time for time, _ in ordered])
            found.update(zip((number for _, number in ordered), frames, strict=True))
        return [found[number] for number in range(len(places))]


def storage_type(type_: pa.DataType) -> pa.DataType:
    """Return a type without an extension of the library `datasets`, which exists only where it is imported."""
    is_library = isinstance(type_, pa.ExtensionType) and type_.extension_name.startswith("datasets.")
    return type_.storage_type if is_library else type_


def _without_library_types(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if storage_type(field.type) is not field.type:
            stored = pa.chunked_array(
                [chunk.storage for chunk in table.column(number).chunks], storage_type(field.type)
            )
            table = table.set_column(number, field.name, stored)
    return table


def _to_ndarray(column: pa.Array) -> npt.NDArray[Any]:
    """Return numbers, or nested lists of equal lengths, as an ndarray."""
    shape, found = [len(column)], column
    while is_list(found.type):
        if found.null_count:
            raise ValueError("it has null values")
        lengths = set(pc.unique(pc.list_value_length(found)).to_pylist())
        if len(lengths) > 1:
            raise ValueError(f"its lists differ in length: {sorted(lengths)}")
        shape.append(lengths.pop() if lengths else 0)
        found = found.flatten()
    flat: npt.NDArray[Any] = found.to_numpy(zero_copy_only=False)
    return flat.reshape(shape)
