"""Sources in the shape that Ray had before: arguments of the read come with it, and not with the source."""

from __future__ import annotations

from typing import Any

from skate.data.datasource.datasource import Datasource, ReadTask


class Reader:
    """What an older source's `create_reader` returns; derive a `Datasource` with `get_read_tasks` instead."""

    def estimate_inmemory_data_size(self) -> int | None:
        """Return how many bytes the source is expected to take as blocks, or None."""
        raise NotImplementedError(f"{type(self).__name__} has to define estimate_inmemory_data_size()")

    def get_read_tasks(self, parallelism: int) -> list[ReadTask]:
        """Cut the source into tasks.

        Args:
            parallelism: How many tasks are wanted; more or fewer are allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} has to define get_read_tasks(parallelism)")


class LegacyDatasource(Datasource):
    """Read a source that defines `create_reader(**read_args)`, or `prepare_read(parallelism, **read_args)`.

    Args:
        source: The source.
        read_args: What was given for the read.
    """

    def __init__(self, source: Any, read_args: dict[str, Any]) -> None:
        self._source = source
        self._read_args = read_args
        self._reader = source.create_reader(**read_args) if hasattr(source, "create_reader") else None

    @staticmethod
    def is_one(source: Any) -> bool:
        """Whether a source is of that shape."""
        return hasattr(source, "create_reader") or hasattr(source, "prepare_read")

    def get_name(self) -> str:
        """Return the name that plans and statistics show."""
        name = getattr(self._source, "get_name", None)
        return type(self._source).__name__ if name is None else str(name())

    def estimate_inmemory_data_size(self) -> int | None:
        """Return what the reader says, or the source."""
        found = (self._reader or self._source).estimate_inmemory_data_size()
        return None if found is None else int(found)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return the tasks of the reader, or of the source."""
        if self._reader is not None:
            return list(self._reader.get_read_tasks(parallelism))
        return list(self._source.prepare_read(parallelism, **self._read_args))
