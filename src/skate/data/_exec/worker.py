"""Runs the work of a plan: in a task, in a worker actor, or in this process."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

import skate
from skate.data._block import tables
from skate.data._exec import meter
from skate.data._exec.failures import FailedRows
from skate.data._exec.items import Report
from skate.data._exec.tasks import Blocks, Work
from skate.data._exec.udf import drop_instances, instance_keys
from skate.data._kernels import threads
from skate.data.context import DataContext
from skate.exceptions import RayTaskError

T = TypeVar("T")

# Number of works that a worker caches, so that it unpickles a function once and not for every task.
_CACHED_WORKS = 16
_works: OrderedDict[str, Work] = OrderedDict()

# Backpressure stops a task after this many unread objects: two blocks and their reports.
BACKPRESSURE_OBJECTS = 4

HOST = os.uname().nodename  # distinguishes processes of several machines

_PRELOADED = "skate.data._preloaded"  # imports the libraries that every worker needs

# A worker returns unused memory to the system when its private memory exceeds this many bytes.
MEMORY_KEPT_PER_WORKER = 256 * 1024 * 1024

Span = tuple[int, int]  # first row and number of rows


def produce(
    work: Work,
    argument: Any,
    blocks: Sequence[pa.Table],
    index: int,
    after_user_code: Callable[[], None] | None = None,
) -> Blocks:
    """Run the work of a task; yield each block with its report. Call a function after each call of user code."""
    with meter.measure(after_user_code) as measured:
        for made in _in_context(work, work.run(argument, blocks, index)):
            if isinstance(made, FailedRows):
                measured.notes["dead_letter"] = True
                block = made.table
            else:
                block = tables.compact(made)
            yield block, _report(block, measured)
            measured.restart_clock()


def as_task_error(error: Exception, name: str) -> Exception:
    """Return an error of this process in the form in which `skate.get` raises it."""
    if isinstance(error, RayTaskError):
        return error
    return RayTaskError.from_exception(name, error).as_instanceof_cause()


def _in_context(work: Work, stream: Iterator[T]) -> Iterator[T]:
    """Yield the same values, computed while the settings of the dataset are current."""
    while True:
        with _settings_of(work):
            made = next(stream, None)
        if made is None:
            return
        yield made


def _settings_of(work: Work) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager in which the settings of the dataset are current."""
    return contextlib.nullcontext() if work.context is None else DataContext.current(work.context)


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
    """Return the rows of a block that are the input of a task."""
    return block if span == (0, block.num_rows) else tables.slice_rows(block, span[0], span[0] + span[1])


# A unique name, a reference to the work (inside a tuple, which keeps it unresolved), and the process id of the driver.
WorkHandle = tuple[str, Any, int]


def put_work(work: Work) -> WorkHandle:
    """Put a work into the object store, for all workers."""
    return uuid.uuid4().hex, skate.put(work), os.getpid()


def _work(handle: WorkHandle) -> Work:
    """Return the work of a handle from the cache; fetch it the first time."""
    key, reference, driver = handle
    found = _works.get(key)
    if found is None:
        if os.getpid() != driver:
            # Tasks run concurrently, each on its share of the processors.
            threads.limit(int(skate.get_runtime_context().get_assigned_resources().get("CPU", 1)))
        found = _works[key] = skate.get(reference)
        if len(_works) > _CACHED_WORKS:
            _works.popitem(last=False)
    else:
        _works.move_to_end(key)
    return found


def _stream(
    handle: WorkHandle, argument: Any, index: int, spans: list[Span], blocks: tuple[pa.Table, ...]
) -> Iterator[Any]:
    cuts = [cut(block, span) for block, span in zip(blocks, spans, strict=True)]
    for block, report in produce(_work(handle), argument, cuts, index):
        yield block
        yield report
    meter.release_unused_memory(MEMORY_KEPT_PER_WORKER)


def run_task(
    handle: WorkHandle, argument: Any, index: int, spans: list[Span], *blocks: pa.Table
) -> Iterator[Any]:
    """Run the work of a task; yield each block, followed by its report."""
    yield from _stream(handle, argument, index, spans, blocks)


@functools.cache
def task_function(max_calls: int | None = None) -> Any:
    """Return the remote function of tasks, for the option that only a declaration may have."""
    options: dict[str, Any] = {
        "num_returns": "streaming",
        "_generator_backpressure_num_objects": BACKPRESSURE_OBJECTS,
    }
    if max_calls is not None:
        options["max_calls"] = max_calls
    return skate.remote(**options)(run_task)


def with_preloading(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a task or actor whose worker starts with Arrow, pandas and this package imported.

    >>> with_preloading({"num_cpus": 2, "runtime_env": {"env_vars": {"A": "b"}}})
    {'num_cpus': 2, 'runtime_env': {'env_vars': {'A': 'b'}, 'preload': ['skate.data._preloaded']}}
    """
    environment = options.get("runtime_env") or {}
    modules = [_PRELOADED, *(environment.get("preload") or ())]
    return {**options, "runtime_env": {**environment, "preload": modules}}


class WorkerActor:
    """A worker actor: runs the work of one operator, and keeps the instances of user classes."""

    def __init__(self, handle: WorkHandle) -> None:
        self._work_handle = handle
        before = instance_keys()  # of other actors, on an engine with one process
        work = _work(handle)
        with _settings_of(work):
            work.prepare()
        self._instances = instance_keys() - before

    def ready(self) -> None:
        """Return when the actor has started."""

    def drop_instances(self) -> None:
        """Drop the instances of user classes, so that their finalizers run before the process is killed."""
        drop_instances(self._instances)

    def run(self, argument: Any, index: int, spans: list[Span], *blocks: pa.Table) -> Iterator[Any]:
        """Run the work of a task; yield each block, followed by its report."""
        yield from _stream(self._work_handle, argument, index, spans, blocks)
