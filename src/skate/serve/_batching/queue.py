"""The queue of one batched function: waiting calls and running batches, without polling."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from skate.serve._batching.batches import FormingBatch, RunningBatch, enter_batch, split_into_runs
from skate.serve._batching.calls import Call
from skate.serve._batching.settings import BatchSettings

if TYPE_CHECKING:
    from skate.serve._batching.metrics import BatchMetrics

_logger = logging.getLogger("skate.serve")


class BatchQueue:
    """Groups calls into batches and runs them on the event loop that created the queue.

    A batch starts when it is full or its first call has waited long enough, and fewer than `max_concurrent_batches`
    run. Between batches there is no task and no timer.

    Args:
        function: The batched function: a coroutine function or an async generator function.
        settings: Returns the current settings. A batch uses those at the time it became the next one.
        streams: Whether the function is an async generator function.
        owner: The object whose method the function is, if any.
        metrics: Records the start and end of each batch.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Callable[[], BatchSettings],
        *,
        streams: bool,
        owner: Any = None,
        metrics: BatchMetrics | None = None,
    ) -> None:
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self._function = function
        self._settings = settings
        self._streams = streams
        self._metrics = metrics
        self._forming: deque[FormingBatch] = deque()
        self._timer: asyncio.TimerHandle | None = None  # for the first forming batch
        self._running: dict[RunningBatch, float] = {}  # with the Unix time of the start
        self._running_batches = 0  # running batches; one that was split into several runs counts once

    def submit(self, call: Call) -> None:
        """Add a call, whose caller waits for its result.

        Raises:
            RuntimeError: If the call is too large for any batch.
        """
        if not self._join_last(call):
            self._open(call, self.loop.time(), contextvars.copy_context())
        elif not self._forming[-1].is_closed:
            return
        self._advance()

    def start_times(self) -> list[float]:
        """Return the start times of the current runs."""
        return list(self._running.values())

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the current runs."""
        return [part.task for part in self._running if part.task is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        # An object with a queue may be copied or pickled; waiting calls stay with the original.
        return type(None), ()

    def _join_last(self, call: Call) -> bool:
        last = self._forming[-1] if self._forming else None
        return last is not None and not last.is_closed and last.add(call)

    def _open(self, call: Call, since: float, context: contextvars.Context) -> None:
        """Start a new batch with a call that the last batch has no room for."""
        settings = self._settings()
        batch = FormingBatch(settings, since + settings.batch_wait_timeout_s, context, self._forget)
        if not batch.add(call):
            raise RuntimeError(
                f"the batch_size_fn of an item exceeds the limit of a whole batch, max_batch_size="
                f"{settings.max_batch_size}: raise max_batch_size, make the item smaller, or check batch_size_fn"
            )
        if self._forming:
            self._forming[-1].is_closed = True  # later calls must not overtake this one
        self._forming.append(batch)

    def _forget(self, batch: FormingBatch) -> None:
        """Drop a batch that all callers have left."""
        is_first = batch is self._forming[0]
        self._forming.remove(batch)
        if is_first:
            self._cancel_timer()
            self._check_next()
            self._advance()

    def _advance(self) -> None:
        """Start every batch that may start, and set the alarm for the next one."""
        while self._forming and self._running_batches < self._settings().max_concurrent_batches:
            first = self._forming[0]
            if not (first.is_closed or first.is_due):
                self._start_timer(first)
                return
            self._cancel_timer()
            self._forming.popleft()
            self._check_next()
            self._start(first)

    def _check_next(self) -> None:
        """Check the settings and the waiting time of the batch that is now the first one."""
        if self._forming:
            self._regroup()
            self._check_clock()

    def _check_clock(self) -> None:
        if self._forming and self.loop.time() >= self._forming[0].due:
            self._forming[0].is_due = True

    def _start_timer(self, batch: FormingBatch) -> None:
        if self._timer is None:
            self._timer = self.loop.call_at(batch.due, self._handle_timer)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _handle_timer(self) -> None:
        # The clock may lag slightly behind the alarm, so record that the batch is due.
        self._timer = None
        self._forming[0].is_due = True
        self._advance()

    def _regroup(self) -> None:
        """Form the waiting batches again if the settings have changed."""
        if self._forming[0].settings is self._settings():
            return
        waiting = list(self._forming)
        self._forming.clear()
        for batch in waiting:
            since = batch.due - batch.settings.batch_wait_timeout_s
            for call in batch.calls:
                try:
                    if not self._join_last(call):
                        self._open(call, since, batch.context.copy())
                except Exception as error:  # the call no longer fits the new limit
                    call.holder = None
                    call.fail(error)

    def _start(self, batch: FormingBatch) -> None:
        self._running_batches += 1
        now = time.time()
        if self._metrics is not None:
            settings = batch.settings
            batch.started = self.loop.time()
            waited = batch.started - batch.due + settings.batch_wait_timeout_s
            queued = sum(len(other.calls) for other in self._forming)
            self._metrics.started(waited, batch.size, settings.max_batch_size, queued)
        parts = split_into_runs(batch, self._handle_run_end)
        batch.parts_left = len(parts)
        for part in parts:
            context = batch.context if len(parts) == 1 else batch.context.copy()
            context.run(enter_batch, part.requests())
            self._running[part] = now
            part.task = self.loop.create_task(self._run(part), context=context)

    async def _run(self, part: RunningBatch) -> None:
        part.ends_by_itself = True
        try:
            args, kwargs = part.arguments()
            if self._streams:
                async with aclosing(self._function(*args, **kwargs)) as generator:
                    async for results in generator:
                        part.answer(results)
                part.end()
            else:
                part.answer(await self._function(*args, **kwargs))
        except BaseException as error:
            if isinstance(error, Exception) and not part.is_awaited:
                _logger.warning("a batch failed after all of its callers had left", exc_info=error)
            part.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._handle_run_end(part)

    def _handle_run_end(self, part: RunningBatch) -> None:
        del self._running[part]
        part.formed.parts_left -= 1
        if not part.formed.parts_left:
            self._running_batches -= 1
            if self._metrics is not None:
                self._metrics.ended(self.loop.time() - part.formed.started)
            self._check_clock()
            self._advance()
