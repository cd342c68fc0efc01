"""Where the work of a plan is done: in a task, in an actor, or in this process."""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

import skate
from skate.data._block import tables
from skate.data._exec import meter
from skate.data._exec.failures import FailedRows
from skate.data._exec.items import Report
from skate.data._exec.tasks import Work
from skate.data._kernels import threads
from skate.data.context import DataContext

T = TypeVar("T")

# A worker keeps the work of the last few operators, so that a function is unpickled once and not for every task.
_KEPT = 16
_works: OrderedDict[str, Work] = OrderedDict()

# A task is held back when it has made as many objects that nobody has taken: two blocks and their reports.
BACKPRESSURE_OBJECTS = 4

HOST = os.uname().nodename  # tells processes of several machines apart

_PRELOADED = "skate.data._preloaded"  # imports the libraries that every worker needs

MEMORY_KEPT_PER_WORKER = (
    256 * 1024 * 1024
)  # bytes that a worker has for itself before it gives back what it does not use

Span = tuple[int, int]  # first row and number of rows


def produce(
    work: Work, argument: Any, blocks: Sequence[pa.Table], index: int
) -> Iterator[tuple[pa.Table, Report]]:
    """Do a task's work; yield each block with a report of it."""
    with meter.measuring() as measured:
        for made in _in_context(work, work.run(argument, blocks, index)):
            if isinstance(made, FailedRows):
                measured.notes["dead_letter"] = True
                block = made.table
            else:
                block = tables.compact(made)
            yield block, _report(block, measured)
            measured.restart_clock()


def _in_context(work: Work, stream: Iterator[T]) -> Iterator[T]:
    """Yield the same, made while the settings of the dataset are those that user code sees."""
    if work.context is None:
        yield from stream
        return
    while True:
        with DataContext.current(work.context):
            made = next(stream, None)
        if made is None:
            return
        yield made


def _report(block: pa.Table, measured: meter.Meter) -> Report:
    seconds, user_seconds, notes = measured.read()
    files = tuple(notes.pop("files", ()))
    return Report(
        rows=block.num_rows,
        bytes=tables.nbytes(block),
        schema=block.schema,
        files=files,
        seconds=seconds,
        user_seconds=user_seconds,
        host=HOST,
        process=os.getpid(),
        memory=meter.own_memory(),
        notes=notes,
    )


def cut(block: pa.Table, span: Span) -> pa.Table:
    """Return the rows of a block that a task is to work on."""
    return block if span == (0, block.num_rows) else tables.slice_rows(block, span[0], span[0] + span[1])


# A name that no other work has; a reference to the work, which is not fetch_rows for it; and the process of the driver.
WorkHandle = tuple[str, Any, int]


def hold(work: Work) -> WorkHandle:
    """Keep a work where every worker finds it."""
    return uuid.uuid4().hex, skate.put(work), os.getpid()


def _work(holder: WorkHandle) -> Work:
    """Return the work of an operator, which is fetch_rows the first time."""
    key, reference, driver = holder
    found = _works.get(key)
    if found is None:
        if os.getpid() != driver:
            # Tasks run side by side, each on its share of the processors.
            threads.limit(int(skate.get_runtime_context().get_assigned_resources().get("CPU", 1)))
        found = _works[key] = skate.get(reference)
        if len(_works) > _KEPT:
            _works.popitem(last=False)
    else:
        _works.move_to_end(key)
    return found


def _stream(
    holder: WorkHandle, argument: Any, index: int, spans: list[Span], blocks: tuple[pa.Table, ...]
) -> Iterator[Any]:
    cuts = [cut(block, span) for block, span in zip(blocks, spans, strict=True)]
    for block, report in produce(_work(holder), argument, cuts, index):
        yield block
        yield report
    meter.release_unused_memory(MEMORY_KEPT_PER_WORKER)


@skate.remote(num_returns="streaming", _generator_backpressure_num_objects=BACKPRESSURE_OBJECTS)  # type: ignore[untyped-decorator]
def run_task(
    holder: WorkHandle, argument: Any, index: int, spans: list[Span], *blocks: pa.Table
) -> Iterator[Any]:
    """Do a task's work; yield, for each block, the block and its report."""
    yield from _stream(holder, argument, index, spans, blocks)


def with_preloading(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task or an actor, so that its worker starts with Arrow, pandas and this library imported.

    >>> with_preloading({"num_cpus": 2, "runtime_env": {"env_vars": {"A": "b"}}})
    {'num_cpus': 2, 'runtime_env': {'env_vars': {'A': 'b'}, 'preload': ['skate.data._preloaded']}}
    """
    environment = options.get("runtime_env") or {}
    modules = [_PRELOADED, *(environment.get("preload") or ())]
    return {**options, "runtime_env": {**environment, "preload": modules}}


class WorkerActor:
    """Does an operator's work in a process of its own, which keeps what the work has set up."""

    def __init__(self, holder: WorkHandle) -> None:
        self._work_handle = holder
        _work(holder).prepare()

    def ready(self) -> None:
        """Return as soon as the actor can work."""

    def run(self, argument: Any, index: int, spans: list[Span], *blocks: pa.Table) -> Iterator[Any]:
        """Do a task's work; yield, for each block, the block and its report."""
        yield from _stream(self._work_handle, argument, index, spans, blocks)
