"""Options of all writers: for their tasks, and for their files."""

from __future__ import annotations

import warnings
from typing import Any, TypedDict

from skate.data._arguments import check_options
from skate.data._io import validation
from skate.data.datasource import FilenameProvider, SaveMode


class TaskOptions(TypedDict, total=False):
    """Options for the tasks of a writer.

    Keys:
        ray_remote_args: Options of the tasks.
        concurrency: Maximum number of concurrent tasks.
        resume: Record progress, so that the same program can resume a killed write.
    """

    ray_remote_args: dict[str, Any] | None
    concurrency: int | None
    resume: bool


class FileOptions(TaskOptions, total=False):
    """Options for the files of a writer.

    Keys:
        filesystem: A pyarrow or fsspec filesystem; derived from the path by default.
        try_create_dir: Create the folder if it does not exist.
        arrow_open_stream_args: Options for opening files.
        filename_provider: Provider of the file names.
        min_rows_per_file: Minimum number of rows per file.
        mode: How to treat existing files: append, overwrite, ignore, or error.
        num_rows_per_file: An older name of `min_rows_per_file`.
        dataset_uuid: Prefix of the name of every file.
    """

    filesystem: Any
    try_create_dir: bool
    arrow_open_stream_args: dict[str, Any] | None
    filename_provider: FilenameProvider | None
    min_rows_per_file: int | None
    num_rows_per_file: int | None
    mode: SaveMode
    dataset_uuid: str | None


# `_compute` and the datasinks check these.
_CHECKED_ELSEWHERE = ("concurrency", "mode")


def file_arguments(options: Any) -> dict[str, Any]:
    """Return the file options under the names that datasinks use.

    Raises:
        TypeError: An argument is unknown.
        ValueError: `num_rows_per_file` and `min_rows_per_file` are both given.
    """
    validation.check_known(options, FileOptions.__annotations__, "this writer")
    check_options(
        {name: value for name, value in options.items() if name not in _CHECKED_ELSEWHERE}, FileOptions
    )
    found = {key: value for key, value in options.items() if key not in TaskOptions.__annotations__}
    if "arrow_open_stream_args" in found:
        found["open_stream_args"] = found.pop("arrow_open_stream_args")
    rows = found.pop("num_rows_per_file", None)
    if rows is not None:
        warnings.warn(
            "num_rows_per_file is deprecated in Ray: pass min_rows_per_file", DeprecationWarning, stacklevel=4
        )
        if found.get("min_rows_per_file") is not None:
            raise ValueError(
                f"num_rows_per_file ({rows}) is an older name of min_rows_per_file ({found['min_rows_per_file']}): "
                f"pass only the latter"
            )
        found["min_rows_per_file"] = rows
    return found


def task_arguments(options: Any) -> dict[str, Any]:
    """Return the task options."""
    return {key: value for key, value in options.items() if key in TaskOptions.__annotations__}


def split_options(options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Split options into those of all file writers and those of the format's own writer."""
    known = FileOptions.__annotations__
    given = {key: value for key, value in options.items() if key in known}
    own = {key: value for key, value in options.items() if key not in known}
    validation.check_spelling(own, known, "this writer")
    return given, own
