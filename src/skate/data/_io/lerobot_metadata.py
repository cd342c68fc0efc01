"""The metadata of LeRobot datasets: their features, episodes and tasks, and the files that hold them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from skate.data._io import errors, paths, retrying
from skate.data.exceptions import FileReadError

INFO = "meta/info.json"
_CAMERAS = ("image", "video")
_EPISODES_PER_CHUNK = 1000  # of version 2, unless its metadata says otherwise
# A field of a template. Others could make Python fill memory, or read attributes.
_FIELD = re.compile(r"\{\w+(:\d{0,2}d?)?\}")


@dataclass(frozen=True, slots=True)
class Clip:
    """The part of a video that shows an episode.

    Attributes:
        file: Path of the video within the dataset.
        start: Time of the first frame, in seconds.
    """

    file: str
    start: float


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode, and the files that hold it.

    Attributes:
        number: Its `episode_index`.
        start: `index` of its first row.
        stop: End of its rows, exclusive.
        data: Path of its Parquet file within the dataset.
        clips: Its part of a video by feature.
    """

    number: int
    start: int
    stop: int
    data: str
    clips: dict[str, Clip]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that hold its frames: videos, or its Parquet file if there are none."""
        return tuple(clip.file for clip in self.clips.values()) or (self.data,)


@dataclass(frozen=True)
class LeRobotRoot:
    """A LeRobot dataset without its episodes.

    Attributes:
        given: Its location, as the program passed it.
        filesystem: Filesystem of all its files.
        path: Path of its folder on the filesystem.
        fps: Frames per second.
        features: Description of each feature: `dtype`, `shape`, and further keys.
        tasks: The description of a task by its `task_index`.
        stats: Statistics of the features, as JSON.
    """

    given: str
    filesystem: pafs.FileSystem
    path: str
    fps: float
    features: dict[str, dict[str, Any]]
    tasks: dict[int, str]
    stats: str

    @property
    def videos(self) -> list[str]:
        """The features whose frames are in videos."""
        return [name for name, feature in self.features.items() if feature.get("dtype") == "video"]

    @property
    def images(self) -> list[str]:
        """The features whose frames are encoded images in Parquet files."""
        return [name for name, feature in self.features.items() if feature.get("dtype") == "image"]

    @property
    def others(self) -> dict[str, tuple[Any, tuple[int, ...]]]:
        """Type and shape of each feature that is not a camera."""
        return {
            name: (feature.get("dtype"), _shape(feature))
            for name, feature in self.features.items()
            if feature.get("dtype") not in _CAMERAS
        }

    def frame_shape(self, camera: str) -> tuple[int, int, int] | None:
        """Return height, width and number of channels of the decoded frames of a camera; None if unknown."""
        shape, names = _shape(self.features[camera]), self.features[camera].get("names")
        if len(shape) != 3:
            return None
        channels_first = isinstance(names, list) and bool(names) and str(names[0]).startswith("channel")
        height, width = shape[1:] if channels_first else shape[:2]
        return height, width, 3

    def row_bytes(self, columns: Sequence[str], windows: Mapping[str, int]) -> int:
        """Return about how many bytes a row takes in these columns, some of which hold windows of values."""
        sizes = [
            windows.get(name, 1) * self._bytes_of(name, feature)
            for name, feature in self.features.items()
            if name in columns
        ]
        return 12 + sum(sizes)  # and three numbers, for the columns that are not features

    def _bytes_of(self, name: str, feature: Mapping[str, Any]) -> int:
        if feature.get("dtype") in _CAMERAS:
            return math.prod(self.frame_shape(name) or ())
        try:
            width = pa.type_for_alias(str(feature.get("dtype"))).bit_width // 8
        except ValueError:  # text has no fixed width
            return 32
        return math.prod(_shape(feature)) * max(1, int(width))

    def locate(self, file: str) -> str:
        """Return the path of a file of the dataset on its filesystem."""
        return f"{self.path.rstrip('/')}/{file}"


def load(given: str, filesystem: pafs.FileSystem, path: str) -> tuple[LeRobotRoot, list[Episode]]:
    """Read the metadata of a dataset.

    Args:
        given: Its location, as the program passed it.
        filesystem: Its filesystem.
        path: Path of its folder on the filesystem.

    Raises:
        FileNotFoundError: A file of metadata is missing.
        FileReadError: A file is damaged or incomplete, or its version is not supported.
    """
    file = f"{path.rstrip('/')}/{INFO}"
    if filesystem.get_file_info(file).type == pafs.FileType.NotFound:
        raise FileNotFoundError(
            f"{given} holds no LeRobot dataset: {INFO} is missing. Pass the folder that holds `meta` and `data`"
        )
    info = _json(filesystem, file)
    wanted: dict[str, Any] = {
        "codebase_version": str,
        "fps": (int, float),
        "features": dict,
        "data_path": str,
    }
    for name, kind in wanted.items():
        if not isinstance(info.get(name), kind):
            raise FileReadError("LeRobot", file, f"{name} is {info.get(name)!r}")
    version = info["codebase_version"].removeprefix("v").partition(".")[0]
    if version not in ("2", "3"):
        raise FileReadError(
            "LeRobot", file, f"the version of the dataset is {info['codebase_version']}", "Convert it to 3.0"
        )
    if info["fps"] <= 0:
        raise FileReadError("LeRobot", file, f"fps is {info['fps']}")
    stats = f"{path.rstrip('/')}/meta/stats.json"
    has_stats = filesystem.get_file_info(stats).type == pafs.FileType.File
    root = LeRobotRoot(
        given=given,
        filesystem=filesystem,
        path=path,
        fps=float(info["fps"]),
        features=info["features"],
        tasks={},
        stats=json.dumps(_json(filesystem, stats)) if has_stats else "{}",
    )
    if root.videos and not isinstance(info.get("video_path"), str):
        raise FileReadError("LeRobot", file, f"video_path is {info.get('video_path')!r}, but it has videos")
    root.tasks.update(_tasks_2(root) if version == "2" else _tasks_3(root))
    return root, list(_episodes_2(root, info) if version == "2" else _episodes_3(root, info))


def inner_path(path: str, file: str) -> str:
    """Return a path that a dataset contains, if it does not lead out of the dataset.

    Args:
        path: The path within the dataset.
        file: The file that contains it.

    Raises:
        FileReadError: It leads out of the dataset.
    """
    if path.startswith("/") or ".." in path.split("/"):
        raise FileReadError("LeRobot", file, f"the path {path!r} leads out of the dataset")
    return path


# ------------------------------------------------------------ version 3: Parquet


def _tasks_3(root: LeRobotRoot) -> dict[int, str]:
    path = root.locate("meta/tasks.parquet")
    table = read_parquet(root.filesystem, path)
    # pandas wrote the descriptions as an index, whose column has a name of its own.
    texts = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or not texts:
        raise FileReadError(
            "Parquet", path, f"it needs task_index and a description, not {table.column_names}"
        )
    numbers = table.column("task_index").to_pylist()
    return dict(zip(numbers, table.column(texts[0]).to_pylist(), strict=True))


def _episodes_3(root: LeRobotRoot, info: Mapping[str, Any]) -> Iterator[Episode]:
    names = ["episode_index", "dataset_from_index", "dataset_to_index"]
    names += ["data/chunk_index", "data/file_index"]
    for video in root.videos:
        names += [f"videos/{video}/{column}" for column in ("chunk_index", "file_index", "from_timestamp")]
    for file in paths.expand([root.locate("meta/episodes")], root.filesystem, extensions=["parquet"]):
        for row in read_parquet(root.filesystem, file.path, names).to_pylist():
            clips = {
                video: Clip(
                    _fill_in(
                        root,
                        info["video_path"],
                        video_key=video,
                        chunk_index=row[f"videos/{video}/chunk_index"],
                        file_index=row[f"videos/{video}/file_index"],
                    ),
                    row[f"videos/{video}/from_timestamp"],
                )
                for video in root.videos
            }
            data = _fill_in(
                root,
                info["data_path"],
                chunk_index=row["data/chunk_index"],
                file_index=row["data/file_index"],
            )
            yield Episode(
                row["episode_index"], row["dataset_from_index"], row["dataset_to_index"], data, clips
            )


# ------------------------------------------------------------ version 2: lines of JSON


def _tasks_2(root: LeRobotRoot) -> dict[int, str]:
    rows = _json_lines(root, "meta/tasks.jsonl", "task_index", "task")
    return {row["task_index"]: row["task"] for row in rows}


def _episodes_2(root: LeRobotRoot, info: Mapping[str, Any]) -> Iterator[Episode]:
    start = 0
    rows = _json_lines(root, "meta/episodes.jsonl", "episode_index", "length")
    for row in sorted(rows, key=lambda row: row["episode_index"]):
        number, stop = row["episode_index"], start + row["length"]
        chunk = number // info.get("chunks_size", _EPISODES_PER_CHUNK)
        where = {"episode_chunk": chunk, "episode_index": number}
        clips = {
            video: Clip(_fill_in(root, info["video_path"], video_key=video, **where), 0.0)
            for video in root.videos
        }
        yield Episode(number, start, stop, _fill_in(root, info["data_path"], **where), clips)
        start = stop


# ------------------------------------------------------------ files


def _fill_in(root: LeRobotRoot, template: str, **fields: Any) -> str:
    """Return the path of a file that a template with fields such as `{chunk_index:03d}` describes."""
    file = root.locate(INFO)
    if "{" in _FIELD.sub("", template):
        raise FileReadError("LeRobot", file, f"{template!r} is not a template of paths")
    try:
        return inner_path(template.format(**fields), file)
    except (KeyError, ValueError) as error:
        if isinstance(error, FileReadError):
            raise
        raise FileReadError("LeRobot", file, f"{template!r} has an unknown field: {error}") from error


def read_parquet(
    filesystem: pafs.FileSystem, path: str, columns: Sequence[str] | None = None, filters: Any = None
) -> pa.Table:
    """Read a Parquet file, or some of its columns and rows.

    Raises:
        FileNotFoundError: It is missing.
        FileReadError: It is damaged, or lacks a column.
    """

    def read() -> pa.Table:
        import pyarrow.parquet as pq  # not needed to import the datasource

        with filesystem.open_input_file(path) as file:
            table = pq.read_table(
                file,
                columns=None if columns is None else list(columns),
                filters=filters,
                partitioning=None,
                use_threads=False,
            )
        missing = sorted(set(columns or ()) - set(table.column_names))
        if missing:
            raise FileReadError("Parquet", path, f"it lacks the columns {missing}")
        return table

    return _read(read, "Parquet", path)


def read_parquet_schema(filesystem: pafs.FileSystem, path: str) -> pa.Schema:
    """Read the schema of a Parquet file."""

    def read() -> pa.Schema:
        import pyarrow.parquet as pq

        with filesystem.open_input_file(path) as file:
            return pq.read_schema(file)

    return _read(read, "Parquet", path)


def _json(filesystem: pafs.FileSystem, path: str) -> dict[str, Any]:
    def read() -> Any:
        with filesystem.open_input_stream(path) as file:
            return json.loads(file.read())

    found = _read(read, "JSON", path)
    if not isinstance(found, dict):
        raise FileReadError("JSON", path, f"it holds a {type(found).__name__}, not an object")
    return found


def _json_lines(root: LeRobotRoot, file: str, *wanted: str) -> list[dict[str, Any]]:
    path = root.locate(file)

    def read() -> list[Any]:
        with root.filesystem.open_input_stream(path) as stream:
            return [json.loads(line) for line in stream.read().splitlines() if line.strip()]

    rows: list[dict[str, Any]] = _read(read, "JSON", path)
    for number, row in enumerate(rows, start=1):
        missing = [name for name in wanted if not isinstance(row, dict) or name not in row]
        if missing:
            raise FileReadError("JSON", path, f"line {number} lacks {missing}")
    return rows


def _read(read: Any, kind: str, path: str) -> Any:
    try:
        return retrying.call(read, f"reading {path}")
    except Exception as error:
        named = errors.with_path(error, kind, path)
        if named is error:
            raise
        raise named from error


def _shape(feature: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(feature.get("shape") or ())
