"""Videos as a source: a row for each frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _optional
from skate.data._block import batches
from skate.data._io import paths
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.exceptions import FileReadError

VIDEO_EXTENSIONS = [
    *(
        "mp4",
        "mkv",
        "mov",
        "avi",
        "wmv",
        "flv",
        "webm",
        "m4v",
        "3gp",
        "mpeg",
        "mpg",
        "ts",
        "ogv",
        "rm",
        "rmvb",
        "vob",
    ),
    *("asf", "f4v", "m2ts", "mts", "divx", "xvid", "mxf"),
]
_BYTES_PER_BLOCK = 16 << 20


class VideoDatasource(FileBasedDatasource):
    """Read the frames of videos: `frame`, an array, and `frame_index`, its number in the video.

    Args:
        paths: Files, folders, globs or URIs.
        include_timestamps: Add `frame_timestamp`: when the frame starts and ends, in seconds.
        fps: Take frames at about this rate; a video that has fewer is read whole.
        resize: Height and width to scale all frames to.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "video"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = VIDEO_EXTENSIONS
    _ENCODING_RATIO: ClassVar[float] = 50.0

    def __init__(
        self,
        paths: paths.Paths,
        *,
        include_timestamps: bool = False,
        fps: int | None = None,
        resize: tuple[int, int] | None = None,
        **file_args: Any,
    ) -> None:
        if fps is not None and (not isinstance(fps, int) or fps <= 0):
            raise ValueError(f"fps is {fps}: pass a positive int")
        if resize is not None and (len(resize) != 2 or not all(isinstance(n, int) and n > 0 for n in resize)):
            raise ValueError(f"resize is {resize}: pass height and width, both positive ints")
        _optional.load("av", "read_videos")
        self._include_timestamps = include_timestamps
        self._fps = fps
        self._resize = resize
        super().__init__(paths, **file_args)

    def _open_input_source(self, filesystem: pafs.FileSystem, path: str, **open_args: Any) -> pa.NativeFile:
        return filesystem.open_input_file(path)  # the index of a video may be at its end

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        av = _optional.load("av", "read_videos")
        try:
            with av.open(f, mode="r") as container:
                yield from self._blocks_of_frames(container.streams.video[0], container)
        except (av.FFmpegError, IndexError) as error:
            raise FileReadError("video", path, str(error) or "it has no video stream") from error

    def _blocks_of_frames(self, stream: Any, container: Any) -> Iterator[pa.Table]:
        rate = float(stream.average_rate or 0)
        stride = max(1, round(rate / self._fps)) if self._fps and rate else 1
        size = {} if self._resize is None else {"height": self._resize[0], "width": self._resize[1]}
        frames: list[Any] = []
        indices: list[int] = []
        times: list[tuple[float, float]] = []
        taken = 0
        for index, frame in enumerate(container.decode(stream)):
            if index % stride:
                continue
            array = frame.to_ndarray(format="rgb24", **size)
            start = float(frame.time or 0.0)
            length = (
                float(frame.duration * frame.time_base) if frame.duration else (1 / rate if rate else 0.0)
            )
            frames.append(array)
            indices.append(index)
            times.append((start, start + length))
            taken += array.nbytes
            if taken >= _BYTES_PER_BLOCK:
                yield self._block(frames, indices, times)
                frames, indices, times, taken = [], [], [], 0
        if frames:
            yield self._block(frames, indices, times)

    def _block(self, frames: list[Any], indices: list[int], times: list[tuple[float, float]]) -> pa.Table:
        columns: dict[str, Any] = {"frame": np.stack(frames), "frame_index": indices}
        if self._include_timestamps:
            columns["frame_timestamp"] = np.array(times)
        return batches.to_block(columns)
