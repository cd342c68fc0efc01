"""Decode the frames of cameras of LeRobot datasets: from videos by their times, and from encoded images."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _optional
from skate.data._block import columns
from skate.data._io import errors, retrying
from skate.data._io.lerobot_metadata import inner_path
from skate.data.exceptions import FileReadError

# Times farther apart than this are sought separately, rather than decoding everything in between.
_SEEK_BEYOND_S = 1.0

Frame = npt.NDArray[np.uint8]


class VideoFrames:
    """The frames of a video, which stays open between calls.

    Args:
        filesystem: Filesystem of the video.
        path: Its path.
        tolerance: The longest time between a requested time and that of the frame, in seconds.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str, tolerance: float) -> None:
        self._filesystem = filesystem
        self._path = path
        self._tolerance = tolerance
        self._file: Any = None
        self._container: Any = None

    def read(self, times: Sequence[float]) -> list[Frame]:
        """Return the frame that is nearest to each time.

        Args:
            times: Times in seconds, in ascending order.

        Raises:
            FileNotFoundError: The video is missing.
            FileReadError: The video is damaged, or has no frame at a time.
        """
        return retrying.call(lambda: self._read(times), f"reading {self._path}")

    def close(self) -> None:
        """Close the video; the next `read` opens it again."""
        for opened in (self._container, self._file):
            if opened is not None:
                opened.close()
        self._file = self._container = None

    def _read(self, times: Sequence[float]) -> list[Frame]:
        try:
            if self._container is None:
                self._file = self._filesystem.open_input_file(self._path)
                self._container = _optional.load("av", "read_lerobot").open(self._file, mode="r")
            if not self._container.streams.video:
                raise FileReadError("video", self._path, "it has no video stream")
            return [frame for run in _runs(times) for frame in self._run(run)]
        except Exception as error:
            self.close()
            named = errors.with_path(error, "video", self._path)
            if named is error:
                raise
            raise named from error

    def _run(self, times: Sequence[float]) -> Iterator[Frame]:
        """Yield the frames of times that are close to each other."""
        decoded = self._decode_from(times[0])
        before, after = None, next(decoded, None)
        for time in times:
            while after is not None and after.time < time:
                before, after = after, next(decoded, None)
            near = [frame for frame in (before, after) if frame is not None]
            frame = min(near, key=lambda frame: abs(frame.time - time), default=None)
            if frame is None or abs(frame.time - time) > self._tolerance:
                nearest = "no frame follows" if frame is None else f"the nearest is at {frame.time:.3f} s"
                raise FileReadError(
                    *("video", self._path, f"it has no frame at {time:.3f} s: {nearest}"),
                    "The file is cut, or the times need a larger frame_tolerance_s",
                )
            yield frame.to_ndarray(format="rgb24")

    def _decode_from(self, time: float) -> Iterator[Any]:
        """Return the frames from a key frame that is not after a time."""
        stream = self._container.streams.video[0]
        start = stream.start_time or 0
        back = self._tolerance
        while True:
            goal = max(int((time - back) / stream.time_base), start)
            self._container.seek(goal, stream=stream)
            frames = (frame for frame in self._container.decode(stream) if frame.time is not None)
            first = next(frames, None)
            if first is None or first.time <= time or goal == start:
                return itertools.chain([first] if first is not None else [], frames)
            # The key frame was found by the time of decoding, which may be before the time that it is shown.
            back = max(2 * back, _SEEK_BEYOND_S)


def _runs(times: Sequence[float]) -> Iterator[list[float]]:
    """Split ascending times where decoding restarts at another key frame.

    >>> list(_runs([0.0, 0.1, 5.0]))
    [[0.0, 0.1], [5.0]]
    """
    run: list[float] = []
    for time in times:
        if run and time - run[-1] > _SEEK_BEYOND_S:
            yield run
            run = []
        run.append(time)
    if run:
        yield run


def decode_image(cell: Any, feature: str, filesystem: pafs.FileSystem, root: str, file: str) -> Frame:
    """Decode an image of a Parquet file.

    Args:
        cell: The encoded image: bytes, or a dict of `bytes` or the `path` of a file.
        feature: Name of the column.
        filesystem: Filesystem of the dataset.
        root: Folder of the dataset, which holds files of images.
        file: The Parquet file.

    Raises:
        FileReadError: The image is missing or damaged.
    """
    from PIL import Image

    data = cell.get("bytes") if isinstance(cell, dict) else cell
    path = cell.get("path") if isinstance(cell, dict) else None
    if data is None and path:
        folder = f"{root.rstrip('/')}/"
        file = folder + inner_path(path.removeprefix(folder), file)
        with filesystem.open_input_stream(file) as stream:
            data = stream.read()
    if data is None:
        raise FileReadError("image", file, f"a row of the column {feature!r} has neither bytes nor a path")
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises these for damaged images
        raise FileReadError("image", file, f"column {feature!r}: {error}") from error


def frame_column(frames: Sequence[Frame], places: npt.NDArray[np.int64]) -> pa.Array:
    """Return a column of frames, or of windows of frames.

    Args:
        frames: Decoded frames.
        places: For each row, the place of its frame in `frames`, or an array of them for a window.
    """
    if len({frame.shape for frame in frames}) == 1:
        return columns.to_column(np.stack(frames)[places], "frames")
    if places.ndim == 1:
        return columns.to_column([frames[place] for place in places], "frames")
    return columns.to_column([np.stack([frames[place] for place in row]) for row in places], "frames")
