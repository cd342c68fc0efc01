"""Names of the files that a write makes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class FilenameProvider:
    """Derive from this to name the files of a write yourself.

    One of the methods is enough: the others build on `get_filename_for_task`. A name must not repeat within a write,
    and must be the same when a task is done again: build it from the arguments, not from chance.

    Args:
        dataset_uuid: Part of every name; left out if not given.
        file_format: The extension.

    >>> FilenameProvider(file_format="csv").get_filename_for_task("5f3a", 2)
    '5f3a_000002.csv'
    """

    def __init__(self, dataset_uuid: str | None = None, file_format: str | None = None) -> None:
        self._dataset_uuid = dataset_uuid
        self._file_format = file_format

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        """Return the name of the file that a task writes.

        Args:
            write_uuid: Names the write, so that two writes into one folder do not collide.
            task_index: Number of the task.
        """
        # A subclass may not have called __init__.
        dataset, extension = getattr(self, "_dataset_uuid", None), getattr(self, "_file_format", None)
        stem = "_".join(part for part in (dataset, write_uuid, f"{task_index:06}") if part)
        return f"{stem}.{extension}" if extension else stem

    def get_filename_for_block(
        self, block: pa.Table | None, write_uuid: str, task_index: int, block_index: int
    ) -> str:
        """Return the name of the file for one of the blocks that a task writes.

        Args:
            block: What is written.
            write_uuid: Names the write.
            task_index: Number of the task.
            block_index: Number of the file within the task.
        """
        name = self.get_filename_for_task(write_uuid, task_index)
        return name if block_index == 0 else numbered(name, f"{block_index:06}")

    def get_filename_for_row(
        self, row: dict[str, Any], write_uuid: str, task_index: int, block_index: int, row_index: int
    ) -> str:
        """Return the name of the file for one row, for formats that hold one row in a file.

        Args:
            row: What is written.
            write_uuid: Names the write.
            task_index: Number of the task.
            block_index: Number of the block within the task.
            row_index: Number of the row within the block.
        """
        name = self.get_filename_for_task(write_uuid, task_index)
        return numbered(name, f"{block_index:06}_{row_index:06}")


def numbered(name: str, number: str) -> str:
    """Return a file name with a number before its extension.

    >>> numbered("data.csv", "000001")
    'data_000001.csv'
    """
    stem, dot, extension = name.rpartition(".")
    return f"{stem}_{number}{dot}{extension}" if stem else f"{name}_{number}"
