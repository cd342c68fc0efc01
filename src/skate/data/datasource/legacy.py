"""Support for Ray's older datasource interface, in which the read call passes the arguments."""

from __future__ import annotations

from typing import Any

from skate.data.datasource.datasource import Datasource, ReadTask


class Reader:
    """Returned by `create_reader` of an older datasource; new code derives a `Datasource` with `get_read_tasks`."""

    def estimate_inmemory_data_size(self) -> int | None:
        """Estimate the size of the data in memory, in bytes; None if unknown."""
        raise NotImplementedError(f"{type(self).__name__} must define estimate_inmemory_data_size()")

    def get_read_tasks(self, parallelism: int) -> list[ReadTask]:
        """Divide the datasource into tasks.

        Args:
            parallelism: Desired number of tasks; more or fewer are allowed.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_read_tasks(parallelism)")


class LegacyDatasource(Datasource):
    """Adapter for a datasource that defines `create_reader(**read_args)` or `prepare_read(parallelism, **read_args)`.

    Args:
        source: The datasource.
        read_args: Arguments of the read call.
    """

    def __init__(self, source: Any, read_args: dict[str, Any]) -> None:
        self._source = source
        self._read_args = read_args
        self._reader = source.create_reader(**read_args) if hasattr(source, "create_reader") else None

    @staticmethod
    def is_one(source: Any) -> bool:
        """Return whether an object is such a datasource."""
        return hasattr(source, "create_reader") or hasattr(source, "prepare_read")

    def get_name(self) -> str:
        """Return the name for plans and statistics."""
        name = getattr(self._source, "get_name", None)
        return type(self._source).__name__ if name is None else str(name())

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the estimate of the reader or the datasource."""
        found = (self._reader or self._source).estimate_inmemory_data_size()
        return None if found is None else int(found)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return the tasks of the reader or the datasource."""
        if self._reader is not None:
            return list(self._reader.get_read_tasks(parallelism))
        return list(self._source.prepare_read(parallelism, **self._read_args))
