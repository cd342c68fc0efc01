"""Images, as a source and as a sink."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from skate.air import _optional
from skate.data._arguments import check_type, message
from skate.data._block import batches
from skate.data._io import paths
from skate.data.datasource.file_based_datasource import FileBasedDatasource
from skate.data.datasource.file_datasink import RowBasedFileDatasink
from skate.data.exceptions import FileReadError

IMAGE_EXTENSIONS = ["png", "jpg", "jpeg", "tif", "tiff", "bmp", "gif"]


class ImageDatasource(FileBasedDatasource):
    """Read images, as arrays in the column `image`.

    Args:
        paths: Files, folders, globs or URIs.
        size: Height and width to scale all images to.
        mode: A mode of Pillow's to convert all images to, such as `"RGB"` or `"L"`.
        file_args: As for `FileBasedDatasource`.
    """

    _KIND: ClassVar[str] = "image"
    _FILE_EXTENSIONS: ClassVar[list[str] | None] = IMAGE_EXTENSIONS
    _NUM_THREADS_PER_TASK: ClassVar[int] = 8
    _ENCODING_RATIO: ClassVar[float] = 8.0  # photographs, compressed

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
            raise FileReadError("image", path, "it is no image that Pillow knows") from error
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
        """Return about how many bytes the arrays take: exact when size and mode are given."""
        if self._size is None or self._mode is None:
            return super().estimate_inmemory_data_size()
        channels = {"L": 1, "P": 1, "1": 1, "LA": 2, "RGBA": 4, "CMYK": 4, "F": 4, "I": 4}.get(self._mode, 3)
        return len(self._files) * self._size[0] * self._size[1] * channels


def check_size(name: str, size: Any) -> None:
    """Raise unless a size is a height and a width."""
    words = "height and width, two positive integers"
    check_type(name, size, (tuple, list), words)
    if len(size) != 2 or not all(isinstance(each, (int, np.integer)) and each > 0 for each in size):
        raise ValueError(message(name, words, size))


def _check_mode(mode: str) -> None:
    from PIL import Image, ImageMode

    try:
        ImageMode.getmode(mode)
    except KeyError:
        words = f"a mode of Pillow's, such as {', '.join(map(repr, Image.MODES))}"
        raise ValueError(message("mode", words, mode)) from None


def _check_format(file_format: str) -> None:
    from PIL import Image

    known = Image.registered_extensions()  # which also loads the formats
    if f".{file_format.lower()}" not in known and file_format.upper() not in Image.SAVE:
        words = "an extension of a format of Pillow's, such as 'png', 'jpeg' or 'webp'"
        raise ValueError(message("file_format", words, file_format))


class ImageDatasink(RowBasedFileDatasink):
    """Write images, a file for each row.

    Args:
        path: The folder.
        column: Which column holds the arrays.
        file_format: A format of Pillow's, and the extension of the files.
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
        """Encode one row's array."""
        from PIL import Image

        if self.column not in row:
            raise ValueError(f"no column {self.column!r} to write as images: there are {list(row)}")
        # Pillow asks for `jpeg`, files are called `jpg`.
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
