"""Datasource for LeRobot datasets, which hold episodes of robots: states and actions, and the frames of cameras."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skate.air import _filesystems as filesystems
from skate.air import _optional
from skate.data._arguments import message
from skate.data._block import tensors
from skate.data._block.kinds import is_list
from skate.data._io import balancing, paths
from skate.data._io.lerobot_metadata import LeRobotRoot, load, read_parquet_schema
from skate.data._io.lerobot_rows import ADDED, KEYS, SegmentReader, storage_type
from skate.data._io.lerobot_segments import Segment, segments_of, select, split
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource.datasource import Datasource, ReadTask
from skate.data.exceptions import FileReadError

_GRANULARITIES = ("file", "episode")
_TEXT = pa.dictionary(pa.int32(), pa.string())


class LeRobotDatasource(Datasource):
    """Read LeRobot datasets, one row per frame.

    Args:
        root: Folder of a dataset, or a list of them, which must have the same features.
        episodes: Read only episodes with these numbers; all by default.
        read_granularity: `"file"` reads the episodes of a file in one task, `"episode"` each on its own.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        storage_options: Options of an fsspec filesystem for the URI.
        frame_tolerance_s: The longest time between a row and its frame of a video, in seconds; half a frame by default.
        delta_timestamps: Offsets in seconds by feature, to read a window of values instead of one.
        delta_tolerance_s: The greatest deviation of an offset from a multiple of the time of a frame.

    Raises:
        FileNotFoundError: A folder holds no LeRobot dataset, or lacks a file.
        FileReadError: A file is damaged.
        ImportError: A library that decodes frames is missing.
        ValueError: An argument does not match the datasets, or the datasets do not match each other.
    """

    def __init__(
        self,
        root: paths.Paths,
        *,
        episodes: Sequence[int] | None = None,
        read_granularity: Literal["file", "episode"] = "file",
        filesystem: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        frame_tolerance_s: float | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        delta_tolerance_s: float = 1e-4,
    ) -> None:
        if frame_tolerance_s is not None and frame_tolerance_s <= 0:
            raise ValueError(message("frame_tolerance_s", "a positive number or None", frame_tolerance_s))
        if read_granularity not in _GRANULARITIES:
            raise ValueError(
                f"read_granularity must be one of {list(_GRANULARITIES)}, got {read_granularity!r}"
            )
        if episodes is not None and not episodes:
            raise ValueError("episodes is empty: pass the numbers of episodes, or None to read all")
        given = paths.as_list(root)
        self._distributed = not any(path.startswith("local:") for path in given)
        loaded = [load(path, *_resolve(path, filesystem, storage_options)) for path in given]
        self._roots = [each for each, _ in loaded]
        self._tolerance = frame_tolerance_s
        for other in self._roots[1:]:
            _check_alike(self._roots[0], other)
        first = self._roots[0]
        self._steps = _steps(first, delta_timestamps or {}, delta_tolerance_s)
        chosen = select([list(each) for _, each in loaded], episodes)
        self._segments = [
            segment
            for number, some in enumerate(chosen)
            for segment in segments_of(number, some, read_granularity)
        ]
        self._schema = self._schema_of(self._segments[0]) if self._segments else pa.schema([])
        self._columns = self._schema.names
        if first.videos:
            _optional.require("av", "read_lerobot")
        if first.images:
            _optional.require("PIL", "read_lerobot", "pillow")

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether any worker can read; `local://` paths are read in the driver process."""
        return self._distributed

    def get_name(self) -> str:
        """Return the name for plans and statistics."""
        return "LeRobot"

    def schema(self) -> pa.Schema | None:
        """Return the schema of the columns that are read."""
        return pa.schema([self._schema.field(name) for name in self._columns])

    def num_rows(self) -> int | None:
        """Return the number of frames."""
        return sum(segment.rows for segment in self._segments)

    def estimate_inmemory_data_size(self) -> int | None:
        """Return about how many bytes the columns take."""
        return sum(self._bytes_of(segment) for segment in self._segments)

    def default_num_blocks(self) -> int:
        """Return the number of files or episodes, according to `read_granularity`."""
        return len(self._segments)

    @property
    def has_windows(self) -> bool:
        """Whether rows hold windows, for which a task reads whole episodes."""
        return bool(self._steps)

    def apply_projection(self, columns: list[str]) -> LeRobotDatasource | None:
        """Return a datasource that reads only these columns, and opens no videos for others."""
        if not columns or not set(columns) <= set(self._columns):
            return None
        return self._replace(_columns=list(columns))  # type: ignore[no-any-return]

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Divide the segments into groups of about the same number of rows, or split them further."""
        if not self._segments:
            return []
        segments = self._segments
        if parallelism > len(segments) and not self._steps:
            segments = split(segments, parallelism)
        groups = balancing.balance(segments, [segment.rows for segment in segments], parallelism)
        target = (data_context or DataContext.get_current()).target_max_block_size
        reader = self._replace(_segments=[], _target=target or balancing.DEFAULT_BLOCK_BYTES)
        return [
            ReadTask(
                functools.partial(reader._read, group, per_task_row_limit),
                BlockMetadata(
                    num_rows=sum(segment.rows for segment in group),
                    size_bytes=sum(self._bytes_of(segment) for segment in group),
                    input_files=[
                        self._roots[segment.root].locate(file) for segment in group for file in segment.files
                    ],
                    exec_stats=None,
                ),
                self.schema(),
                per_task_row_limit,
            )
            for group in groups
        ]

    def _bytes_of(self, segment: Segment) -> int:
        return segment.rows * self._row_bytes(segment)

    def _row_bytes(self, segment: Segment) -> int:
        windows = {name: len(steps) for name, steps in self._steps.items()}
        return self._roots[segment.root].row_bytes(self._columns, windows)

    def _schema_of(self, segment: Segment) -> pa.Schema:
        root = self._roots[segment.root]
        stored = read_parquet_schema(root.filesystem, root.locate(segment.data[0]))
        lacking = [name for name in KEYS if name not in stored.names]
        if lacking:
            path = root.locate(segment.data[0])
            raise FileReadError("Parquet", path, f"it lacks the columns {lacking}")
        fields = []
        for name in [*stored.names, *root.videos]:
            steps = self._steps.get(name)
            if name in root.videos or name in root.images:
                fields.append(pa.field(name, _frame_type(root.frame_shape(name), steps)))
            else:
                type_ = storage_type(stored.field(name).type)
                shape = tuple(root.features.get(name, {}).get("shape") or ())
                fields.append(pa.field(name, type_ if steps is None else _window_type(type_, shape, steps)))
        added = dict(zip(ADDED, (_TEXT, pa.int32(), _TEXT), strict=True))
        fields += [pa.field(name, type_) for name, type_ in added.items()]
        fields += [
            pa.field(f"{name}_is_pad", pa.fixed_shape_tensor(pa.bool_(), [len(self._steps[name])]))
            for name in [*stored.names, *root.videos]
            if name in self._steps
        ]
        return pa.schema(fields)

    # ------------------------------------------------------------ reading, in a worker

    _target: int = balancing.DEFAULT_BLOCK_BYTES

    def _read(self, segments: Sequence[Segment], limit: int | None) -> Iterator[pa.Table]:
        for segment in segments:
            reading = SegmentReader(
                self._roots[segment.root], segment, self._steps, self._tolerance, self._columns
            )
            rows = segment.rows if limit is None else min(limit, segment.rows)
            step = max(1, self._target // self._row_bytes(segment))
            try:
                for start in range(0, rows, step):
                    yield reading.block(start, min(start + step, rows))
            finally:
                reading.close()
            if limit is not None:
                limit -= rows
                if limit <= 0:
                    return


def _resolve(path: str, filesystem: Any, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    if filesystem is None and storage_options:
        core = _optional.load("fsspec.core", "storage_options of read_lerobot", "fsspec")
        options = dict(storage_options)
        if "://anonymous@" in path:
            path = path.replace("://anonymous@", "://", 1)
            options.setdefault("anon", True)
        filesystem, path = core.url_to_fs(path, **options)
    return filesystems.resolve(path, filesystem)


def _check_alike(first: LeRobotRoot, other: LeRobotRoot) -> None:
    """Raise an error unless the rows of two datasets have the same columns."""
    for what in ("videos", "images", "fps", "others"):
        mine, theirs = getattr(first, what), getattr(other, what)
        if isinstance(mine, list):
            mine, theirs = sorted(mine), sorted(theirs)
        if mine != theirs:
            name = {"others": "features"}.get(what, what)
            raise ValueError(
                f"the datasets have different {name}: {first.given} has {mine}, {other.given} has {theirs}. "
                "Read them separately"
            )


def _steps(
    root: LeRobotRoot, offsets: Mapping[str, Sequence[float]], tolerance: float
) -> dict[str, npt.NDArray[np.int64]]:
    """Return offsets in frames by feature.

    Raises:
        ValueError: A feature does not exist, or an offset is not a multiple of the time of a frame.
    """
    steps = {}
    for name, given in offsets.items():
        if name not in root.features:
            raise ValueError(
                f"delta_timestamps has {name!r}, which is none of the features {list(root.features)}"
            )
        if len(given) == 0:
            raise ValueError(f"delta_timestamps has no offsets for {name!r}: pass at least one, such as 0.0")
        frames = np.asarray(given, np.float64) * root.fps
        off = [
            offset
            for offset, frame in zip(given, frames, strict=True)
            if not math.isfinite(frame) or abs(frame - round(frame)) / root.fps > tolerance
        ]
        if off:
            raise ValueError(
                f"the offsets {off} of {name!r} in delta_timestamps are not multiples of 1/{root.fps:g} s within "
                f"a tolerance of {tolerance:g} s: use multiples, or a larger delta_tolerance_s"
            )
        steps[name] = np.round(frames).astype(np.int64)
    return steps


def _frame_type(shape: tuple[int, int, int] | None, steps: npt.NDArray[np.int64] | None) -> pa.DataType:
    window = [] if steps is None else [len(steps)]
    if shape is None:
        return tensors.VariableShapedTensorType(pa.uint8(), 3 + len(window))
    return pa.fixed_shape_tensor(pa.uint8(), [*window, *shape])


def _window_type(type_: pa.DataType, shape: tuple[int, ...], steps: npt.NDArray[np.int64]) -> pa.DataType:
    depth = 0
    while is_list(type_):
        depth, type_ = depth + 1, type_.value_type
    if depth not in (0, len(shape)):
        return tensors.VariableShapedTensorType(type_, 1 + depth)
    return pa.fixed_shape_tensor(type_, [len(steps), *(shape if depth else ())])
