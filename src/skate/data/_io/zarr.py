"""Datasource for Zarr stores, which hold arrays in chunks."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from skate.air import _filesystems as filesystems
from skate.air import _optional
from skate.data._block import rows
from skate.data._io import balancing, pickled_columns, retrying
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource.datasource import Datasource, ReadTask

ChunkShapes = Mapping[str, Sequence[int]] | Sequence[int] | None


@dataclass(frozen=True)
class Grid:
    """An array of a store, and the chunk grid in which it is read.

    Attributes:
        name: The path of the array in its store.
        shape: Shape of the array.
        chunks: Shape of a chunk; chunks at the end of an axis may be shorter.
        itemsize: Size of an element, in bytes.
    """

    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    itemsize: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of chunks along each axis."""
        return tuple(-(-size // chunk) for size, chunk in zip(self.shape, self.chunks, strict=True))

    @property
    def nbytes(self) -> int:
        """The size of the array, in bytes."""
        return math.prod(self.shape) * self.itemsize

    def ranges(self, index: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return the start and stop of a chunk along each axis.

        >>> Grid("a", (5, 4), (2, 4), 8).ranges((2, 0))
        [(4, 5), (0, 4)]
        """
        return [
            (number * chunk, min((number + 1) * chunk, size))
            for number, chunk, size in zip(index, self.chunks, self.shape, strict=True)
        ]


class ZarrDatasource(Datasource):
    """Read the arrays of a Zarr store, one row per chunk.

    Args:
        path: A folder, a `.zip` file, or a URI.
        filesystem: A pyarrow or fsspec filesystem; derived from the URI by default.
        chunk_shapes: Leading axes of the chunks to read, for all arrays or by the path of an array.
        array_paths: Arrays to read; all by default.
        allow_full_metadata_scan: List the whole store to find arrays if its metadata is not consolidated.
        align_axis_0: Combine the chunks of all arrays that share a range of the first axis into one row.
        overlap: Number of elements along the first axis that a row shares with the next one; needs `align_axis_0`.

    Raises:
        ValueError: An array does not exist, its codec unpickles, or the arrays cannot be aligned.
    """

    def __init__(
        self,
        path: str,
        *,
        filesystem: Any = None,
        chunk_shapes: ChunkShapes = None,
        array_paths: Sequence[str] | None = None,
        allow_full_metadata_scan: bool = False,
        align_axis_0: bool = False,
        overlap: int = 0,
    ) -> None:
        _zarr()
        if not isinstance(overlap, int) or overlap < 0:
            raise ValueError(f"overlap is {overlap!r}: pass a non-negative int")
        if overlap and not align_axis_0:
            raise ValueError("overlap needs align_axis_0=True")
        self._distributed = not path.startswith("local:")
        self._filesystem, self._path = filesystems.resolve(path, filesystem)
        self._aligned = align_axis_0
        self._overlap = overlap
        found = self._arrays(array_paths, allow_full_metadata_scan)
        shapes = _check_shapes(chunk_shapes, found)
        self._grids = [_grid(name, array, shapes) for name, array in found.items()]
        if align_axis_0:
            self._check_alignment()

    @property
    def supports_distributed_reads(self) -> bool:
        """Whether any worker can read; `local://` paths are read in the driver process."""
        return self._distributed

    def num_rows(self) -> int | None:
        """Return the number of chunks, or of ranges of the first axis."""
        if self._aligned:
            return self._grids[0].counts[0]
        return sum(math.prod(grid.counts) for grid in self._grids)

    def estimate_inmemory_data_size(self) -> int | None:
        """Return the size of all arrays, in bytes."""
        return sum(grid.nbytes for grid in self._grids)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Split the chunks of each array, or the ranges of the first axis, into groups."""
        reader = self._replace(
            _target=(data_context or DataContext.get_current()).target_max_block_size, _grids=None
        )
        if self._aligned:
            size = sum(grid.nbytes for grid in self._grids)
            groups: list[tuple[Any, int, int]] = [(tuple(self._grids), self._grids[0].counts[0], size)]
        else:
            groups = [(grid, math.prod(grid.counts), grid.nbytes) for grid in self._grids]
        read = reader._read_aligned if self._aligned else reader._read_chunks
        return [
            self._task(functools.partial(read, what, run), run, count, size, per_task_row_limit)
            for what, count, size in groups
            for run in _runs(count, parallelism)
        ]

    def _task(self, read: Any, run: range, count: int, size: int, limit: int | None) -> ReadTask:
        metadata = BlockMetadata(
            num_rows=len(run),
            size_bytes=size * len(run) // count,
            input_files=[self._path],
            exec_stats=None,
        )
        return ReadTask(read, metadata, None, limit)

    # ------------------------------------------------------------ arrays

    def _arrays(self, wanted: Sequence[str] | None, scan: bool) -> dict[str, Any]:
        zarr = _zarr()
        root = _open(self._filesystem, self._path)
        names = None if wanted is None else [name.strip("/") for name in wanted]
        if isinstance(root, zarr.Array):
            if names is not None and names != [""]:
                raise ValueError(f"{self._path} is a single array without {wanted}: omit array_paths")
            return {"": _check_codecs(root, self._path)}
        consolidated = root.metadata.consolidated_metadata is not None
        if names is None and not consolidated and not scan:
            raise ValueError(
                f"the metadata of {self._path} is not consolidated: pass array_paths=[...], call "
                f"zarr.consolidate_metadata once, or pass allow_full_metadata_scan=True to list the store"
            )
        if names is None:
            every = root.members(max_depth=None)
            names = [name for name, member in every if isinstance(member, zarr.Array)]
            if not names:
                raise ValueError(f"{self._path} has no arrays")
        return {name: _check_codecs(self._array(root, name), f"{self._path}/{name}") for name in names}

    def _array(self, root: Any, name: str) -> Any:
        try:
            found = root[name]
        except KeyError:
            arrays = sorted(root.array_keys())
            raise ValueError(f"{self._path} has no array {name!r}; its root holds {arrays}") from None
        if not isinstance(found, _zarr().Array):
            raise ValueError(f"{name!r} of {self._path} is a group: pass the paths of its arrays")
        return found

    def _check_alignment(self) -> None:
        scalars = [grid.name for grid in self._grids if not grid.shape]
        if scalars:
            raise ValueError(
                f"align_axis_0 needs arrays with at least one axis; {scalars} have none: use array_paths"
            )
        lengths = {grid.name: grid.shape[0] for grid in self._grids}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"align_axis_0 needs arrays that share shape[0], which is {lengths}: select arrays with array_paths"
            )
        chunks = {grid.name: grid.chunks[0] for grid in self._grids}
        if len(set(chunks.values())) > 1:
            raise ValueError(
                f"align_axis_0 needs arrays that share the axis-0 chunk size, which is {chunks}: pass chunk_shapes=[n]"
            )

    # ------------------------------------------------------------ reading, in a worker

    def _read_chunks(self, grid: Grid, run: range) -> Iterator[pa.Table]:
        root = _open(self._filesystem, self._path)
        array = root[grid.name] if grid.name else root

        def each() -> Iterator[dict[str, Any]]:
            for number in run:
                index = tuple(int(place) for place in np.unravel_index(number, grid.counts or (1,)))
                index = index[: len(grid.shape)]
                ranges = grid.ranges(index)
                yield {
                    "array": grid.name,
                    "chunk_index": list(index),
                    "chunk_slices": [list(range_) for range_ in ranges],
                    "chunk": self._part(array, ranges),
                }

        return self._blocks(each())

    def _read_aligned(self, grids: tuple[Grid, ...], run: range) -> Iterator[pa.Table]:
        root = _open(self._filesystem, self._path)
        arrays = {grid.name: root[grid.name] if grid.name else root for grid in grids}
        length, step = grids[0].shape[0], grids[0].chunks[0]

        def each() -> Iterator[dict[str, Any]]:
            for number in run:
                start, stop = number * step, min((number + 1) * step, length)
                last = min(stop + self._overlap, length)
                parts = {name: self._part(array, [(start, last)]) for name, array in arrays.items()}
                yield {"t_start": start, "t_stop": stop, **parts}

        return self._blocks(each())

    def _part(self, array: Any, ranges: list[tuple[int, int]]) -> Any:
        where = tuple(slice(start, stop) for start, stop in ranges)
        return retrying.call(lambda: np.asarray(array[where]), f"reading {self._path}")

    def _blocks(self, found: Iterator[dict[str, Any]]) -> Iterator[pa.Table]:
        return balancing.merge_small((rows.to_block([row]) for row in found), self._target)

    _target: int | None = balancing.DEFAULT_BLOCK_BYTES


def _zarr() -> Any:
    zarr = _optional.load("zarr", "read_zarr")
    if int(zarr.__version__.partition(".")[0]) < 3:
        raise ImportError(
            f"read_zarr needs zarr 3 or newer, and {zarr.__version__} is installed: pip install 'zarr>=3'",
            name="zarr",
        )
    return zarr


def _open(filesystem: pafs.FileSystem, path: str) -> Any:
    """Return the root of a store: a group or an array."""
    zarr = _zarr()
    if isinstance(filesystem, pafs.LocalFileSystem):
        store = zarr.storage.ZipStore(path, mode="r") if path.endswith(".zip") else path
        return zarr.open(store, mode="r")
    arrow = _optional.load("fsspec.implementations.arrow", "read_zarr", "fsspec")
    wrapper = _optional.load("fsspec.implementations.asyn_wrapper", "read_zarr", "fsspec")
    # The wrapper needs the filesystem's id, which fsspec defines for HDFS only.
    named = type("ArrowFiles", (arrow.ArrowFSWrapper,), {"fsid": f"arrow_{filesystem.type_name}"})
    files = wrapper.AsyncFileSystemWrapper(named(filesystem), asynchronous=True)
    return zarr.open(zarr.storage.FsspecStore(files, read_only=True, path=path), mode="r")


def _check_codecs(array: Any, path: str) -> Any:
    """Check that the codecs of an array do not unpickle, and return the array.

    Raises:
        ValueError: A codec unpickles, and the program does not trust the files.
    """
    described = array.metadata.to_dict()
    codecs = [described.get(key) for key in ("filters", "compressor", "codecs")]
    if "pickle" in repr(codecs) and not pickled_columns.may_unpickle():
        raise ValueError(
            f"{path} holds pickled Python objects, and loading them can run any code. If you trust the writer of the "
            f"store, set {pickled_columns.ALLOW_PICKLED}=1"
        )
    return array


def _check_shapes(given: ChunkShapes, arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the leading axes of chunks by the path of an array."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        shapes = {name.strip("/"): shape for name, shape in given.items()}
        unknown = sorted(set(shapes) - set(arrays))
        if unknown:
            raise ValueError(
                f"chunk_shapes names arrays that are not read: {unknown}; the arrays are {list(arrays)}"
            )
    else:
        shapes = dict.fromkeys(arrays, given)
    for name, shape in shapes.items():
        valid = isinstance(shape, list | tuple) and len(shape) > 0
        if not valid or not all(_is_size(size) for size in shape):
            raise ValueError(
                f"chunk_shapes is {given!r}: pass a list of positive ints, or a dict of such lists"
            )
        if len(shape) > len(arrays[name].shape):
            raise ValueError(
                f"chunk_shapes has {len(shape)} axes for {name!r}, whose shape is {arrays[name].shape}: pass fewer"
            )
    return {name: tuple(int(size) for size in shape) for name, shape in shapes.items()}


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def _grid(name: str, array: Any, shapes: Mapping[str, tuple[int, ...]]) -> Grid:
    leading = shapes.get(name, ())
    chunks = (*leading, *(int(size) for size in array.chunks[len(leading) :]))
    return Grid(name, tuple(int(size) for size in array.shape), chunks, array.dtype.itemsize)


def _runs(count: int, parts: int) -> list[range]:
    """Split a range of numbers into ranges of about the same length.

    >>> _runs(5, 2)
    [range(0, 3), range(3, 5)]
    """
    step = max(1, -(-count // max(1, parts)))
    starts = [*range(0, count, step), count]
    return [range(start, stop) for start, stop in itertools.pairwise(starts)]
