"""Providers of names for the files of a write."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


class FilenameProvider:
    """Base class of custom providers of file names.

    Overriding one method is enough: the others are based on `get_filename_for_task`. A name must be unique within a
    write, and the same for a retry of a task: derive it from the arguments, not from random values.

    Args:
        dataset_uuid: Prefix of every name; none by default.
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
            write_uuid: Identifier of the write, so that two writes into one folder do not collide.
            task_index: Index of the task.
        """
        # A subclass may not have called __init__.
        dataset, extension = getattr(self, "_dataset_uuid", None), getattr(self, "_file_format", None)
        stem = "_".join(part for part in (dataset, write_uuid, f"{task_index:06}") if part)
        return f"{stem}.{extension}" if extension else stem

    def get_filename_for_block(
        self, block: pa.Table | None, write_uuid: str, task_index: int, block_index: int
    ) -> str:
        """Return the name of the file for one of the blocks of a task.

        Args:
            block: The block.
            write_uuid: Identifier of the write.
            task_index: Index of the task.
            block_index: Index of the file within the task.
        """
        name = self.get_filename_for_task(write_uuid, task_index)
        return name if block_index == 0 else insert_number(name, f"{block_index:06}")

    def get_filename_for_row(
        self, row: dict[str, Any], write_uuid: str, task_index: int, block_index: int, row_index: int
    ) -> str:
        """Return the name of the file for one row, for formats with one row per file.

        Args:
            row: The row.
            write_uuid: Identifier of the write.
            task_index: Index of the task.
            block_index: Index of the block within the task.
            row_index: Index of the row within the block.
        """
        name = self.get_filename_for_task(write_uuid, task_index)
        return insert_number(name, f"{block_index:06}_{row_index:06}")


def insert_number(name: str, number: str) -> str:
    """Insert a number before the extension of a file name.

    >>> insert_number("data.csv", "000001")
    'data_000001.csv'
    """
    stem, dot, extension = name.rpartition(".")
    return f"{stem}_{number}{dot}{extension}" if stem else f"{name}_{number}"
