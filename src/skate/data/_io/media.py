"""Datasources for images, audio and video, and a datasink for images."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _optional
from skate.data._arguments import check_type, message
from skate.data._block import batches
from skate.data._io import paths
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import RowBasedFileDatasink
from skate.data.exceptions import FileReadError

IMAGE_EXTENSIONS = ["png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif"]
AUDIO_EXTENSIONS = [
    *(
        "mp3",
        "wav",
        "aac",
        "flac",
        "ogg",
        "m4a",
        "wma",
        "alac",
        "aiff",
        "pcm",
        "amr",
        "opus",
        "ra",
        "rm",
        "au",
    ),
    *("mid", "midi", "caf"),
]
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
_FRAME_BYTES_PER_BLOCK = 16 << 20


class ImageDatasource(FileBasedDatasource):
    """Read images as arrays into the column `image`.

    Args:
        paths: Files, folders, globs or URIs.
        size: Height and width to resize all images to.
        mode: Pillow mode to convert all images to, such as `"RGB"` or `"L"`.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "image"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = IMAGE_EXTENSIONS
    _NUM_THREADS_PER_TASK: ClassVar[int] = 8
    _ENCODING_RATIO: ClassVar[float] = 8.0  # typical for compressed photographs

    def __init__(
        self,
        paths: paths.Paths,
        *,
        size: tuple[int, int] | None = None,
        mode: str | None = None,
        arrow_open_file_args: dict[str, Any] | None = None,
        **file_args: Any,
    ) -> None:
        _optional.load("PIL", "read_images", "pillow")
        if size is not None:
            check_size("size", size)
        if mode is not None:
            _check_mode(mode)
        self._size = size
        self._mode = mode
        if arrow_open_file_args is not None:
            file_args.setdefault("open_stream_args", arrow_open_file_args)
        super().__init__(paths, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        from PIL import Image, UnidentifiedImageError

        try:
            image = Image.open(io.BytesIO(f.readall()))
            image.load()
        except UnidentifiedImageError as error:  # its text names a buffer, not the file
            raise FileReadError("image", path, "Pillow does not recognize it as an image") from error
        except (OSError, SyntaxError) as error:
            raise FileReadError("image", path, f"Pillow cannot read it: {error}") from error
        if self._size is not None:
            height, width = self._size
            image = image.resize((width, height), resample=Image.Resampling.BILINEAR)  # type: ignore[assignment]
        if self._mode is not None:
            image = image.convert(self._mode)  # type: ignore[assignment]
        yield batches.to_block({"image": np.asarray(image)[np.newaxis]})

    def _rows_per_file(self) -> int | None:
        return 1

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the size of the arrays in bytes; exact if size and mode are given."""
        if self._size is None or self._mode is None:
            return super().estimate_inmemory_data_size()
        channels = {"L": 1, "P": 1, "1": 1, "LA": 2, "RGBA": 4, "CMYK": 4, "F": 4, "I": 4}.get(self._mode, 3)
        return len(self._files) * self._size[0] * self._size[1] * channels


def check_size(name: str, size: Any) -> None:
    """Raise an error unless a size is a height and a width."""
    words = "height and width, two positive integers"
    check_type(name, size, (tuple, list), words)
    if len(size) != 2 or not all(isinstance(each, (int, np.integer)) and each > 0 for each in size):
        raise ValueError(message(name, words, size))


def _check_mode(mode: str) -> None:
    from PIL import Image, ImageMode

    try:
        ImageMode.getmode(mode)
    except KeyError:
        words = f"a Pillow mode, such as {', '.join(map(repr, Image.MODES))}"
        raise ValueError(message("mode", words, mode)) from None


def _check_format(file_format: str) -> None:
    from PIL import Image

    known = Image.registered_extensions()  # also loads the formats
    if f".{file_format.lower()}" not in known and file_format.upper() not in Image.SAVE:
        words = "the extension of a Pillow format, such as 'png', 'jpeg' or 'webp'"
        raise ValueError(message("file_format", words, file_format))


class ImageDatasink(RowBasedFileDatasink):
    """Write images, one file per row.

    Args:
        path: The folder.
        column: The column that holds the arrays.
        file_format: Pillow format, which is also the extension of the files.
        file_args: As for `RowBasedFileDatasink`.
    """

    def __init__(
        self, path: str | os.PathLike[str], column: str, file_format: str = "png", **file_args: Any
    ) -> None:
        _optional.load("PIL", "write_images", "pillow")
        _check_format(file_format)
        super().__init__(path, file_format=file_format, **file_args)
        self.column = column

    def write_row_to_file(self, row: dict[str, Any], file: pa.NativeFile) -> None:
        """Encode the array of one row."""
        from PIL import Image

        if self.column not in row:
            raise ValueError(f"no column {self.column!r} to write as images: the columns are {list(row)}")
        # Pillow calls the format `jpeg`, but files are usually named `jpg`.
        assert self.file_format is not None
        encoded = io.BytesIO()
        array = np.asarray(row[self.column])
        try:
            image = Image.fromarray(array)
        except TypeError as error:
            raise ValueError(
                f"column {self.column!r} cannot be written as images: Pillow takes arrays of numbers with 2 or 3 "
                f"dimensions, got {array.dtype} with {array.ndim}"
            ) from error
        image.save(encoded, format=_pillow_format(self.file_format))
        file.write(encoded.getbuffer())


def _pillow_format(extension: str) -> str:
    return {"jpg": "jpeg", "tif": "tiff"}.get(extension.lower(), extension)


class AudioDatasource(FileBasedDatasource):
    """Read audio files into `amplitude`, an array of channels and samples, and `sample_rate`.

    Accepts the arguments of `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "audio"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = AUDIO_EXTENSIONS
    _NUM_THREADS_PER_TASK: ClassVar[int] = 4
    _ENCODING_RATIO: ClassVar[float] = 8.0

    def __init__(self, paths: paths.Paths, **file_args: Any) -> None:
        _optional.load("soundfile", "read_audio")
        super().__init__(paths, **file_args)

    def _read_stream(self, f: pa.NativeFile, path: str) -> Iterator[pa.Table]:
        soundfile = _optional.load("soundfile", "read_audio")
        try:
            amplitude, sample_rate = soundfile.read(io.BytesIO(f.readall()), always_2d=True, dtype="float32")
        except soundfile.SoundFileError as error:
            raise FileReadError("audio", path, str(error)) from error
        yield batches.to_block({"amplitude": amplitude.T[None].copy(), "sample_rate": [sample_rate]})

    def _rows_per_file(self) -> int | None:
        return 1


class VideoDatasource(FileBasedDatasource):
    """Read the frames of videos into `frame`, an array, and `frame_index`, its number in the video.

    Args:
        paths: Files, folders, globs or URIs.
        include_timestamps: Add `frame_timestamp`: start and end of the frame, in seconds.
        fps: Sample frames at about this rate; a video with a lower rate is read in full.
        resize: Height and width to resize all frames to.
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
            if taken >= _FRAME_BYTES_PER_BLOCK:
                yield self._block(frames, indices, times)
                frames, indices, times, taken = [], [], [], 0
        if frames:
            yield self._block(frames, indices, times)

    def _block(self, frames: list[Any], indices: list[int], times: list[tuple[float, float]]) -> pa.Table:
        columns: dict[str, Any] = {"frame": np.stack(frames), "frame_index": indices}
        if self._include_timestamps:
            columns["frame_timestamp"] = np.array(times)
        return batches.to_block(columns)
