"""Splits a plan into units: checks that it is resumable, and replaces its sources by uncommitted units."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from skate.data._block import tables
from skate.data._exec.items import Item, fetch_rows
from skate.data._exec.units import MAX_UNITS, CompletedUnits, Unit, UnitReadTask, UnitsSource
from skate.data._plan import nodes
from skate.data._plan.planner import Planner
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource import Datasource, ReadTask
from skate.data.datasource.file_based_datasource import FileShuffleConfig
from skate.data.exceptions import ResumeError

# Assume this number of processors, so that the units are the same on every machine.
_PROCESSORS = 8
# Minimum number of units, if there are enough rows: few bytes may be hours of work, and only whole units are kept.
_MIN_UNITS = 2 * _PROCESSORS
# A part of up to this many bytes is split by rows, and read once for each unit.
_MAX_REREAD_BYTES = 8 << 20

# Operations that compute each row from one row, or from adjacent rows of a part.
_WITHIN_A_PART = (
    nodes.EachRow,
    nodes.EachBatch,
    nodes.EachBlock,
    nodes.Project,
    nodes.Filter,
    nodes.Union,
    nodes.Write,
)


@dataclass(frozen=True)
class SourcePart:
    """A part of a source that becomes a unit: a read task, or an item of existing rows.

    Attributes:
        identity: Identifies exactly the rows of the part.
        files: The files of a read task.
        read: The read task.
        item: The existing rows.
    """

    identity: str
    files: tuple[str, ...] = ()
    read: ReadTask | None = None
    item: Item | None = None


def check_resumable(plan: nodes.Node) -> None:
    """Check that a plan can be split into units.

    Raises:
        ResumeError: The plan cannot be resumed.
    """
    for node in plan.walk():
        if isinstance(node, nodes.Read):
            _check_source(node.source)
        elif not isinstance(node, (nodes.Values, *_WITHIN_A_PART)):
            raise ResumeError(
                f"{node.title} needs the rows of all parts of the source at once: no part can be finished before the "
                f"others, and a killed job would have to start over. Write the input of {node.title} with "
                f"resume=True, read it, and write the rest without resume"
            )
        failures = getattr(node, "failures", None)
        if failures is not None and failures.on_error == "dead_letter":
            raise ResumeError(
                f"{node.title} has on_error='dead_letter', and dead letters end with the program: those of a killed "
                f"program would be lost. Pass on_error='drop', which counts them, or catch the error in the function "
                f"and return a row that reports it"
            )


def _check_source(source: Datasource) -> None:
    shuffle = getattr(source, "_shuffle", None)
    if shuffle == "files" or (isinstance(shuffle, FileShuffleConfig) and shuffle.seed is None):
        raise ResumeError(
            f"{source.get_name()} reads its files in a different order each time: a resumed job would not find the "
            f"parts of the killed one. Pass shuffle=FileShuffleConfig(seed=…)"
        )


def count_parts(plan: nodes.Node, context: DataContext, runs_before: int) -> list[int]:
    """Return the number of parts of each source, in the order of the sources in the plan."""
    planner = Planner(context, _PROCESSORS, runs_before)
    found = []
    for node in plan.walk():
        if isinstance(node, nodes.Read):
            found.append(node.blocks or max(_MIN_UNITS, planner.wanted_parts(node)))
        elif isinstance(node, nodes.Values):
            found.append(_MIN_UNITS)
    return found


def split_sources(
    plan: nodes.Node, wanted: list[int], context: DataContext, runs_before: int
) -> list[list[SourcePart]]:
    """Return the parts of each source, in the order of the sources in the plan.

    Raises:
        ResumeError: A source cannot identify its parts.
    """
    planner = Planner(context, _PROCESSORS, runs_before)
    sources = [node for node in plan.walk() if isinstance(node, (nodes.Read, nodes.Values))]
    batch = max((node.call.size or 1 for node in plan.walk() if isinstance(node, nodes.EachBatch)), default=1)
    found = []
    for node, number in zip(sources, wanted, strict=True):
        if isinstance(node, nodes.Read):
            parts = planner.parts_of(replace(node, blocks=number))
            named = [_identify(part, place, node.source) for place, part in enumerate(parts)]
            found.append([cut for part in named for cut in _split_by_rows(part, number // len(named), batch)])
        else:
            items = [
                cut for item in node.items for cut in _split_item(item, number // len(node.items), batch)
            ]
            found.append(
                [SourcePart(f"{place}:{_hash_rows(item)}", item=item) for place, item in enumerate(items)]
            )
    if sum(map(len, found)) > MAX_UNITS:
        raise ResumeError(
            f"the sources have {sum(map(len, found))} parts, and a resumable write has at most {MAX_UNITS}: read "
            f"with a smaller override_num_blocks"
        )
    return found


def _identify(part: ReadTask, number: int, source: Datasource) -> SourcePart:
    if part.identity is None:
        raise ResumeError(
            f"{source.get_name()} has no names for its parts: a resumed job could not tell which parts are done. Write "
            f"its rows to files first, and read these; or, in your own Datasource, give each "
            f"ReadTask(…, identity='…') a name that is the same in every run and changes when the rows change"
        )
    files = tuple(part.metadata.input_files or ())
    return SourcePart(f"{number}:{part.identity}", files, read=part)


def _split_by_rows(part: SourcePart, count: int, batch: int) -> Iterator[SourcePart]:
    """Split a small part by rows; no piece is smaller than a batch."""
    read = part.read
    assert read is not None
    size = read.metadata.size_bytes
    if count < 2 or size is None or size > _MAX_REREAD_BYTES:
        yield part
        return
    rows = read.metadata.num_rows
    rows = sum(block.num_rows for block in read()) if rows is None else rows
    bounds = _bounds(rows, count, batch)
    for start, stop in itertools.pairwise(bounds):
        # The last piece has no end, so that a wrong row count of the source loses no rows.
        end = None if stop == bounds[-1] else stop
        known = BlockMetadata(stop - start, size * (stop - start) // max(1, rows), input_files=part.files)
        identity = f"{part.identity}[{start}:{'' if end is None else end}]"
        task = ReadTask(partial(_read_rows, read, start, end), known, read.schema)
        yield SourcePart(identity, part.files, read=task)


def _read_rows(part: ReadTask, start: int, stop: int | None) -> Iterator[pa.Table]:
    passed = 0
    for block in part():
        first, last = max(0, start - passed), block.num_rows if stop is None else stop - passed
        passed += block.num_rows
        if first < min(last, block.num_rows) or not block.num_rows:
            yield block.slice(first, max(0, last - first))
        if stop is not None and passed >= stop:
            return


def _split_item(item: Item, count: int, batch: int) -> Iterator[Item]:
    for start, stop in itertools.pairwise(_bounds(item.rows, count, batch)):
        yield item.cut(start, stop)


def _bounds(rows: int, count: int, batch: int) -> list[int]:
    count = max(1, min(count, rows // batch))
    return [rows * place // count for place in range(count + 1)]


def _hash_rows(item: Item) -> str:
    """Return a hash of the rows of an item."""
    found = hashlib.blake2b(digest_size=16)

    class Hashing(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            found.update(data)
            return len(data)

    table = tables.compact(
        fetch_rows(item)
    ).combine_chunks()  # a slice would be written with its whole buffers
    with pa.PythonFile(Hashing(), mode="w") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return found.hexdigest()


def with_units(
    plan: nodes.Node, parts: list[list[SourcePart]], committed: set[int], completed: CompletedUnits
) -> tuple[nodes.Node, list[Unit]]:
    """Return the plan with uncommitted units in place of its sources, and these units."""
    numbered = iter(_number_parts(parts))
    left: list[Unit] = []

    def unit_of(number: int, part: SourcePart) -> Unit:
        left.append(Unit(number, part.identity, completed))
        return left[-1]

    def replace_sources(node: nodes.Node) -> nodes.Node:
        if isinstance(node, nodes.Read):
            mine = [(number, part) for number, part in next(numbered) if number not in committed]
            tasks = [UnitReadTask(part.read, unit_of(number, part)) for number, part in mine if part.read]
            return replace(node, source=UnitsSource(node.source, tasks))
        if isinstance(node, nodes.Values):
            mine = [(number, part) for number, part in next(numbered) if number not in committed]
            items = tuple(
                replace(part.item, unit=unit_of(number, part)) for number, part in mine if part.item
            )
            return replace(node, items=items)
        if isinstance(node, nodes.OneInput):
            return replace(node, input=replace_sources(node.input))
        assert isinstance(node, nodes.ManyInputs)
        return replace(node, parts=tuple(replace_sources(each) for each in node.parts))

    return replace_sources(plan), left


def _number_parts(parts: list[list[SourcePart]]) -> list[list[tuple[int, SourcePart]]]:
    found, number = [], 0
    for each in parts:
        found.append([(number + place, part) for place, part in enumerate(each)])
        number += len(each)
    return found
