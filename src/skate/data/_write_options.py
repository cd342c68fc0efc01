"""What all writers take: how their tasks run, and how their files are made."""

from __future__ import annotations

import warnings
from typing import Any, TypedDict

from skate.data._arguments import check_options
from skate.data._io import validation
from skate.data.datasource import FilenameProvider, SaveMode


class TaskOptions(TypedDict, total=False):
    """How the tasks of a writer run.

    Keys:
        ray_remote_args: Options of the tasks.
        concurrency: How many tasks at a time.
        resume: Remember what is written, so that the same program goes on where it was killed.
    """

    ray_remote_args: dict[str, Any] | None
    concurrency: int | None
    resume: bool


class FileOptions(TaskOptions, total=False):
    """How the files of a writer are made.

    Keys:
        filesystem: Where to write, if the path does not say: a filesystem of pyarrow or fsspec.
        try_create_dir: Make the folder if it is not there.
        arrow_open_stream_args: For opening files.
        filename_provider: Names the files.
        min_rows_per_file: Rows in a file at least, as long as there are some.
        mode: What is done if the folder has files: append, overwrite, ignore, or error.
        num_rows_per_file: An older name of `min_rows_per_file`.
        dataset_uuid: Part of the name of every file.
    """

    filesystem: Any
    try_create_dir: bool
    arrow_open_stream_args: dict[str, Any] | None
    filename_provider: FilenameProvider | None
    min_rows_per_file: int | None
    num_rows_per_file: int | None
    mode: SaveMode
    dataset_uuid: str | None


# What `_compute` and the sinks check.
_CHECKED_ELSEWHERE = ("concurrency", "mode")


def file_arguments(options: Any) -> dict[str, Any]:
    """Return what is said about files, as sinks call it.

    Raises:
        TypeError: An argument is none of a writer's.
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
                f"pass the latter alone"
            )
        found["min_rows_per_file"] = rows
    return found


def task_arguments(options: Any) -> dict[str, Any]:
    """Return what is said about tasks."""
    return {key: value for key, value in options.items() if key in TaskOptions.__annotations__}


def split_options(options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Part what all writers of files take from what is for a format's own writer."""
    known = FileOptions.__annotations__
    given = {key: value for key, value in options.items() if key in known}
    own = {key: value for key, value in options.items() if key not in known}
    validation.check_spelling(own, known, "this writer")
    return given, own
