"""Partitioning: values in the names of folders, such as `year=2024/country=fr/data.parquet`."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.data._arguments import check_field, check_type

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from skate.data.expressions import Expr

PartitionDataType = type[int] | type[float] | type[str] | type[bool]

# The folder name of null values in Hive, Spark and pyarrow.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ARROW_TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
}


class PartitionStyle(StrEnum):
    """The form of values in a path: `key=value/` or `value/`."""

    HIVE = "hive"
    DIRECTORY = "dir"


@dataclass
class Partitioning:
    """Describe how the folders of a dataset are named.

    Args:
        style: `"hive"` for `key=value` folders, `"dir"` for folders named by the value alone.
        base_dir: Folder below which partitions start; the root by default.
        field_names: Keys in the order of the folders. Required for `"dir"`, where None skips a folder; for `"hive"`,
            the keys that paths must have.
        field_types: Python types of values, by key; strings by default.
        filesystem: Filesystem of `base_dir`.

    >>> Partitioning("hive", field_types={"year": int}).style
    <PartitionStyle.HIVE: 'hive'>
    """

    style: PartitionStyle | str | None
    base_dir: str | None = None
    field_names: list[str | None] | None = None
    field_types: dict[str, PartitionDataType] | None = None
    filesystem: pafs.FileSystem | None = None

    def __post_init__(self) -> None:
        for name in ("field_names", "field_types", "filesystem"):
            check_field(Partitioning, name, getattr(self, name))
        if self.base_dir is not None:
            check_type("base_dir", self.base_dir, (str, os.PathLike), "a string, a path or None")
        if self.style is not None and not isinstance(self.style, PartitionStyle):
            try:
                self.style = PartitionStyle(self.style)
            except ValueError:
                choices = [style.value for style in PartitionStyle]
                raise ValueError(f"partition style {self.style!r} is unknown: use one of {choices}") from None
        self.base_dir = os.fspath(self.base_dir) if self.base_dir else ""
        self.field_types = self.field_types or {}
        unknown = [key for key, type_ in self.field_types.items() if type_ not in _ARROW_TYPES]
        if unknown:
            raise ValueError(f"field_types of {unknown} must be int, float, str or bool")

    @property
    def normalized_base_dir(self) -> str:
        """The base folder without a scheme, with a trailing slash unless it is the root."""
        assert self.base_dir is not None
        base = self.base_dir
        if base and (filesystems.scheme_of(base) or self.filesystem is not None):
            base = filesystems.resolve(base, self.filesystem)[1]
        return f"{base}/" if base and not base.endswith("/") else base

    @property
    def resolved_filesystem(self) -> pafs.FileSystem:
        """The filesystem of the base folder."""
        return filesystems.resolve(self.base_dir or ".", self.filesystem)[0]

    def to_pyarrow(self) -> pads.Partitioning:
        """Return the equivalent pyarrow partitioning."""
        import pyarrow.dataset as pads  # it imports pandas, which `import skate.data` should not wait for

        if self.style == PartitionStyle.HIVE:
            return (
                pads.HivePartitioning.discover()
                if not self.field_names
                else pads.partitioning(
                    self.arrow_schema([name for name in self.field_names if name]), flavor="hive"
                )
            )
        return pads.partitioning(self.arrow_schema([name for name in self.field_names or () if name]))

    def arrow_schema(self, names: list[str]) -> pa.Schema:
        """Return the types of partition columns."""
        assert self.field_types is not None
        return pa.schema([(name, _ARROW_TYPES[self.field_types.get(name, str)]) for name in names])


class PathPartitionParser:
    """Extract the partition values from a path.

    Args:
        partitioning: The partitioning.

    >>> parse = PathPartitionParser.of(field_types={"year": int})
    >>> parse("data/year=2024/country=fr/part.parquet")
    {'year': 2024, 'country': 'fr'}
    """

    @staticmethod
    def of(
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str | None] | None = None,
        field_types: dict[str, PartitionDataType] | None = None,
        filesystem: pafs.FileSystem | None = None,
    ) -> PathPartitionParser:
        """Create a parser for the partitioning that these arguments describe."""
        return PathPartitionParser(Partitioning(style, base_dir, field_names, field_types, filesystem))

    def __init__(self, partitioning: Partitioning) -> None:
        if partitioning.style not in tuple(PartitionStyle):
            raise ValueError(f"partition style {partitioning.style!r} is unknown: use 'hive' or 'dir'")
        if partitioning.style == PartitionStyle.DIRECTORY and not partitioning.field_names:
            raise ValueError("partition style 'dir' needs field_names: its folder names do not contain keys")
        self._scheme = partitioning

    @property
    def scheme(self) -> Partitioning:
        """The partitioning."""
        return self._scheme

    def __call__(self, path: str) -> dict[str, Any]:
        """Return the values in a path, by key; empty if it has none.

        Raises:
            ValueError: The folders of the path do not match the partitioning.
        """
        folders = self._folders(path)
        if folders is None:
            return {}
        parse = self._hive if self._scheme.style == PartitionStyle.HIVE else self._directory
        return {key: self._convert(key, value) for key, value in parse(folders, path).items()}

    def evaluate_predicate_on_partition(self, path: str, predicate: Expr) -> bool:
        """Return whether the rows of a file can match a predicate on partition columns.

        A path without the columns of the predicate does not match.
        """
        from skate.data._expressions.evaluate import mask

        values = self(path)
        if not values or not predicate.columns() <= set(values):
            return False
        row = pa.table({key: pa.array([value], self.arrow_type(key)) for key, value in values.items()})
        return bool(mask(row, predicate)[0].as_py())

    def arrow_type(self, key: str) -> pa.DataType:
        """Return the Arrow type of a partition column."""
        return self._scheme.arrow_schema([key]).field(key).type

    def _folders(self, path: str) -> list[str] | None:
        folder = posixpath.dirname(path)
        base = self._scheme.normalized_base_dir
        if base and not f"{folder}/".startswith(base):
            base = os.path.abspath(base) + "/"  # paths of files are always absolute
            if not f"{folder}/".startswith(base):
                return None
        return [part for part in f"{folder}/"[len(base) :].split("/") if part]

    def _hive(self, folders: list[str], path: str) -> dict[str, str]:
        pairs = [folder.split("=", 1) for folder in folders if folder.count("=") >= 1]
        found = {key: unquote(value) for key, value in pairs}
        names = self._scheme.field_names
        if names and found and list(found) != names:
            raise ValueError(
                f"{path} has the partition keys {list(found)}, not {names} as in the partitioning"
            )
        return found

    def _directory(self, folders: list[str], path: str) -> dict[str, str]:
        names = self._scheme.field_names
        assert names is not None
        if folders and len(folders) != len(names):
            raise ValueError(
                f"{path} has {len(folders)} folders, {folders}, for the {len(names)} partition fields {names}"
            )
        return {
            name: unquote(folder) for name, folder in zip(names, folders, strict=False) if name is not None
        }

    def _convert(self, key: str, value: str) -> Any:
        assert self._scheme.field_types is not None
        if value == NULL_PARTITION:
            return None
        wanted = self._scheme.field_types.get(key, str)
        if wanted is bool:
            if value.lower() not in ("true", "false"):
                raise ValueError(f"partition {key}={value} is not a bool: use true or false")
            return value.lower() == "true"
        try:
            return wanted(value)
        except ValueError:
            raise ValueError(
                f"partition {key}={value} is not of type {wanted.__name__}, as field_types requires"
            ) from None


class PathPartitionFilter:
    """Select files by the partition values in their paths.

    Args:
        path_partition_parser: Parser of the values.
        filter_fn: Function that takes a dict of the values and returns whether to read the file; None reads all.

    >>> recent = PathPartitionFilter.of(lambda values: int(values["year"]) > 2020)
    >>> recent(["year=2019/a.csv", "year=2024/b.csv"])
    ['year=2024/b.csv']
    """

    @staticmethod
    def of(
        filter_fn: Callable[[dict[str, Any]], bool] | None,
        style: PartitionStyle = PartitionStyle.HIVE,
        base_dir: str | None = None,
        field_names: list[str | None] | None = None,
        field_types: dict[str, PartitionDataType] | None = None,
        filesystem: pafs.FileSystem | None = None,
    ) -> PathPartitionFilter:
        """Create a filter for the partitioning that these arguments describe."""
        parser = PathPartitionParser.of(style, base_dir, field_names, field_types, filesystem)
        return PathPartitionFilter(parser, filter_fn)

    def __init__(
        self, path_partition_parser: PathPartitionParser, filter_fn: Callable[[dict[str, Any]], bool] | None
    ) -> None:
        self._parser = path_partition_parser
        self._filter_fn = filter_fn

    @property
    def parser(self) -> PathPartitionParser:
        """The parser of the values."""
        return self._parser

    def __call__(self, paths: list[str]) -> list[str]:
        """Return the selected paths, in order."""
        return [path for path in paths if self.apply(path)]

    def apply(self, path: str) -> bool:
        """Return whether one path is selected."""
        return self._filter_fn is None or bool(self._filter_fn(self._parser(path)))
