"""Declaration of the rows of the state API: columns, their types, and their formatting."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

__all__ = ["Humanify", "StateSchema", "state_column"]


class Humanify:
    """Format raw values for humans."""

    @staticmethod
    def timestamp(x: float) -> str:
        """Return milliseconds since 1970 as local date and time."""
        return str(datetime.fromtimestamp(x / 1000))

    @staticmethod
    def memory(x: int) -> str:
        """Return bytes in the largest suitable binary unit; a negative size is unknown."""
        if x < 1024:
            return f"{x} B" if x >= 0 else "unknown"
        size = x / 1024
        for unit in ("KiB", "MiB"):
            if size < 1024:
                return f"{size:.3f} {unit}"
            size /= 1024
        return f"{size:.3f} GiB"

    @staticmethod
    def duration(x: int) -> str:
        """Return milliseconds as days, hours, minutes and seconds."""
        return str(timedelta(milliseconds=x))

    @staticmethod
    def events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return events with readable times."""
        return [{**event, "created_ms": Humanify.timestamp(event["created_ms"])} for event in events]

    @staticmethod
    def node_resources(resources: dict[str, Any]) -> dict[str, Any]:
        """Return resources with readable amounts of memory."""
        return {
            name: Humanify.memory(int(amount)) if "memory" in name else amount
            for name, amount in resources.items()
        }


def state_column(
    *,
    filterable: bool,
    detail: bool = False,
    format_fn: Callable[[Any], Any] | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a column.

    Args:
        filterable: Whether filters may use the column.
        detail: Whether the column is filled only with `detail=True`.
        format_fn: Function that formats its values for `humanify`.
        default: Default value; None for details.
    """
    if detail and default is dataclasses.MISSING:
        default = None
    metadata = {"detail": detail, "filterable": filterable, "format_fn": format_fn}
    return dataclasses.field(default=default, metadata=metadata)


class StateSchema:
    """A row: its columns are attributes, also accessible as `row["column"]`."""

    @classmethod
    def _fields(cls) -> Sequence[dataclasses.Field[Any]]:
        return dataclasses.fields(cls)  # type: ignore[arg-type]

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """Return the names of the columns in order."""
        return [f.name for f in cls._fields() if detail or not f.metadata.get("detail")]

    @classmethod
    def columns(cls) -> set[str]:
        """Return the names of all columns."""
        return set(cls.list_columns())

    @classmethod
    def base_columns(cls) -> set[str]:
        """Return the names of the columns that are always filled."""
        return set(cls.list_columns(detail=False))

    @classmethod
    def detail_columns(cls) -> set[str]:
        """Return the names of the columns that are filled with `detail=True`."""
        return cls.columns() - cls.base_columns()

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """Return the names of the columns that filters may use."""
        return {f.name for f in cls._fields() if f.metadata.get("filterable")}

    @classmethod
    def schema_dict(cls) -> dict[str, Any]:
        """Return the type of each column."""
        return {name: kind for name, kind in typing.get_type_hints(cls).items() if name in cls.columns()}

    @classmethod
    def kind_of(cls, column: str) -> type:
        """Return the plain type of the values of a column: bool, int, float, or str for all others."""
        hint = cls.schema_dict()[column]
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        return next((kind for kind in (bool, int, float) if kind in options), str)

    @classmethod
    def humanify(cls, state: dict[str, Any]) -> dict[str, Any]:
        """Format the raw values of a row, given as a dictionary, and return it."""
        for f in cls._fields():
            show = f.metadata.get("format_fn")
            if show is not None and state.get(f.name) is not None:
                state[f.name] = show(state[f.name])
        return state

    def asdict(self) -> dict[str, Any]:
        """Return the row as a dictionary."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a column, or `default` if it does not exist."""
        return getattr(self, key, default)

    def __getitem__(self, key: str) -> Any:
        if key not in self.columns():
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self.columns():
            raise KeyError(key)
        setattr(self, key, value)
