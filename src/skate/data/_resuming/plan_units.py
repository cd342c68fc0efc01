"""Cutting a plan into units: which plans can be cut, and the same plan with the units that are left."""

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
from skate.data._exec.units import MAX_UNITS, Done, Unit, UnitReadTask, UnitsSource
from skate.data._plan import nodes
from skate.data._plan.planner import Planner
from skate.data.block import BlockMetadata
from skate.data.context import DataContext
from skate.data.datasource import Datasource, ReadTask
from skate.data.datasource.file_based_datasource import FileShuffleConfig
from skate.data.exceptions import ResumeError

# A source is cut as if there were so many processors, so that the units are the same on every machine.
_PROCESSORS = 8
# Into so many units, if there are as many rows: few bytes may be hours of work, and what is kept of it is whole units.
_LEAST_UNITS = 2 * _PROCESSORS
# A part that cannot be cut by its source is cut by rows, and read again for each cut, if it is no larger than this.
_SMALL = 8 << 20

# What makes each of its rows out of one row, or out of rows that come one after the other in a part.
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
class Part:
    """A part of a source before it is a unit: of a source that is read, or of rows that the program holds.

    Attributes:
        identity: Names exactly what is read.
        files: Where it is read from, if from files.
        read: What reads it.
        item: The rows themselves.
    """

    identity: str
    files: tuple[str, ...] = ()
    read: ReadTask | None = None
    item: Item | None = None


def check(plan: nodes.Node) -> None:
    """Make sure that a plan can be cut into units.

    Raises:
        ResumeError: It cannot.
    """
    for node in plan.walk():
        if isinstance(node, nodes.Read):
            _check_source(node.source)
        elif not isinstance(node, (nodes.Values, *_WITHIN_A_PART)):
            raise ResumeError(
                f"{node.title} needs rows of all parts of the source at once, so that no part can be finished before "
                f"the others, and a killed job would have to start over. Write what {node.title} works on with "
                f"resume=True, read that, and write the rest without resume"
            )
        failures = getattr(node, "failures", None)
        if failures is not None and failures.on_error == "dead_letter":
            raise ResumeError(
                f"{node.title} has on_error='dead_letter', and dead letters end with the program: those of a killed "
                f"one would be missing. Pass on_error='drop', which counts them, or catch the error in the function "
                f"and return a row that says so"
            )


def _check_source(source: Datasource) -> None:
    shuffle = getattr(source, "_shuffle", None)
    if shuffle == "files" or (isinstance(shuffle, FileShuffleConfig) and shuffle.seed is None):
        raise ResumeError(
            f"{source.get_name()} reads its files in an order that is another one each time, so that a killed job "
            f"would not find its parts again. Pass shuffle=FileShuffleConfig(seed=…)"
        )


def wanted_parts(plan: nodes.Node, context: DataContext, runs_before: int) -> list[int]:
    """Return into how many parts to cut each source, in the order in which the plan names them."""
    planner = Planner(context, _PROCESSORS, runs_before)
    found = []
    for node in plan.walk():
        if isinstance(node, nodes.Read):
            found.append(node.blocks or max(_LEAST_UNITS, planner.wanted_parts(node)))
        elif isinstance(node, nodes.Values):
            found.append(_LEAST_UNITS)
    return found


def cut(plan: nodes.Node, wanted: list[int], context: DataContext, runs_before: int) -> list[list[Part]]:
    """Return the parts of each source of a plan, in the order in which the plan names the sources.

    Raises:
        ResumeError: A source cannot name its parts.
    """
    planner = Planner(context, _PROCESSORS, runs_before)
    sources = [node for node in plan.walk() if isinstance(node, (nodes.Read, nodes.Values))]
    batch = max((node.call.size or 1 for node in plan.walk() if isinstance(node, nodes.EachBatch)), default=1)
    found = []
    for node, number in zip(sources, wanted, strict=True):
        if isinstance(node, nodes.Read):
            parts = planner.parts_of(replace(node, blocks=number))
            named = [_named(part, place, node.source) for place, part in enumerate(parts)]
            found.append([cut for part in named for cut in _by_rows(part, number // len(named), batch)])
        else:
            items = [cut for item in node.items for cut in _cuts(item, number // len(node.items), batch)]
            found.append([Part(f"{place}:{_content(item)}", item=item) for place, item in enumerate(items)])
    if sum(map(len, found)) > MAX_UNITS:
        raise ResumeError(
            f"the sources have {sum(map(len, found))} parts, and a write that can be resumed has at most {MAX_UNITS}: "
            f"read with a smaller override_num_blocks"
        )
    return found


def _named(part: ReadTask, number: int, source: Datasource) -> Part:
    if part.identity is None:
        raise ResumeError(
            f"{source.get_name()} has no names for its parts, so that a killed job could not tell what it has done. "
            f"Write what it reads to files first, and read these; or, in a Datasource of your own, give each "
            f"ReadTask(…, identity='…') a name that is the same in every run and differs when the rows do"
        )
    files = tuple(part.metadata.input_files or ())
    return Part(f"{number}:{part.identity}", files, read=part)


def _by_rows(part: Part, count: int, batch: int) -> Iterator[Part]:
    """Yield a small part as several, none of which is smaller than a batch."""
    read = part.read
    assert read is not None
    size = read.metadata.size_bytes
    if count < 2 or size is None or size > _SMALL:
        yield part
        return
    rows = read.metadata.num_rows
    rows = sum(block.num_rows for block in read()) if rows is None else rows
    bounds = _bounds(rows, count, batch)
    for start, stop in itertools.pairwise(bounds):
        end = (
            None if stop == bounds[-1] else stop
        )  # whatever the source says about its rows, none is left out
        known = BlockMetadata(stop - start, size * (stop - start) // max(1, rows), input_files=part.files)
        identity = f"{part.identity}[{start}:{'' if end is None else end}]"
        task = ReadTask(partial(_rows_of, read, start, end), known, read.schema)
        yield Part(identity, part.files, read=task)


def _rows_of(part: ReadTask, start: int, stop: int | None) -> Iterator[pa.Table]:
    passed = 0
    for block in part():
        first, last = max(0, start - passed), block.num_rows if stop is None else stop - passed
        passed += block.num_rows
        if first < min(last, block.num_rows) or not block.num_rows:
            yield block.slice(first, max(0, last - first))
        if stop is not None and passed >= stop:
            return


def _cuts(item: Item, count: int, batch: int) -> Iterator[Item]:
    for start, stop in itertools.pairwise(_bounds(item.rows, count, batch)):
        yield item.cut(start, stop)


def _bounds(rows: int, count: int, batch: int) -> list[int]:
    count = max(1, min(count, rows // batch))
    return [rows * place // count for place in range(count + 1)]


def _content(item: Item) -> str:
    """Return a name for the rows that a program holds."""
    found = hashlib.blake2b(digest_size=16)

    class Hashing(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            found.update(data)
            return len(data)

    table = tables.compact(
        fetch_rows(item)
    ).combine_chunks()  # a slice would be written with what is around it
    with pa.PythonFile(Hashing(), mode="w") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return found.hexdigest()


def with_units(
    plan: nodes.Node, parts: list[list[Part]], committed: set[int], done: Done
) -> tuple[nodes.Node, list[Unit]]:
    """Return the plan with the units that are left in place of its sources, and these units."""
    numbered = iter(_numbered(parts))
    left: list[Unit] = []

    def unit_of(number: int, part: Part) -> Unit:
        left.append(Unit(number, part.identity, done))
        return left[-1]

    def changed(node: nodes.Node) -> nodes.Node:
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
            return replace(node, input=changed(node.input))
        assert isinstance(node, nodes.ManyInputs)
        return replace(node, parts=tuple(changed(each) for each in node.parts))

    return changed(plan), left


def _numbered(parts: list[list[Part]]) -> list[list[tuple[int, Part]]]:
    found, number = [], 0
    for each in parts:
        found.append([(number + place, part) for place, part in enumerate(each)])
        number += len(each)
    return found
