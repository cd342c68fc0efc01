"""Audio files as a source."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from skate.air import _optional
from skate.data._block import batches
from skate.data._io import paths
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.exceptions import FileReadError

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


class AudioDatasource(FileBasedDatasource):
    """Read audio files: `amplitude`, an array of channels and samples, and `sample_rate`.

    Takes the arguments of `FileBasedDatasource`.
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
