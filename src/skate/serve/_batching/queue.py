"""The calls of one batched function that wait, and the batches that run: nothing here polls or sleeps."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from skate.serve._batching.batches import FormingBatch, RunningBatch, enter_batch, runs
from skate.serve._batching.calls import Call
from skate.serve._batching.settings import BatchSettings

if TYPE_CHECKING:
    from skate.serve._batching.metrics import BatchMetrics

_logger = logging.getLogger("skate.serve")


class BatchQueue:
    """Puts calls into batches, and runs these by a function on the loop that it was made on.

    A batch starts when it is full or its first call has waited long enough, and fewer than
    `max_concurrent_batches` run. Between batches there is no task and no timer.

    Args:
        function: The batched function: a coroutine function, or one that makes async generators.
        settings: Returns the settings of the moment. A batch goes by those of when it became the next one.
        streams: Whether the function makes async generators.
        owner: The object whose method the function is, if it is one.
        measures: Told of each batch that starts and ends.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Callable[[], BatchSettings],
        *,
        streams: bool,
        owner: Any = None,
        measures: BatchMetrics | None = None,
    ) -> None:
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self._function = function
        self._settings = settings
        self._streams = streams
        self._measures = measures
        self._forming: deque[FormingBatch] = deque()
        self._alarm: asyncio.TimerHandle | None = None  # for the first of them
        self._running: dict[RunningBatch, float] = {}  # and when it started, by the clock on the wall
        self._turns = 0  # batches that run; one that was split still is one turn

    def submit(self, call: Call) -> None:
        """Take a call in; its caller waits for its answer.

        Raises:
            RuntimeError: If the call is too large for any batch.
        """
        if not self._joins_last(call):
            self._open(call, self.loop.time(), contextvars.copy_context())
        elif not self._forming[-1].is_closed:
            return
        self._advance()

    def start_times(self) -> list[float]:
        """Return when the runs that are under way started."""
        return list(self._running.values())

    def tasks(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the runs that are under way."""
        return [part.task for part in self._running if part.task is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        # An object with batches may be copied or pickled; what waits in them stays with the original.
        return type(None), ()

    def _joins_last(self, call: Call) -> bool:
        last = self._forming[-1] if self._forming else None
        return last is not None and not last.is_closed and last.add(call)

    def _open(self, call: Call, since: float, context: contextvars.Context) -> None:
        """Begin a new batch with a call that the last one has no room for."""
        settings = self._settings()
        batch = FormingBatch(settings, since + settings.batch_wait_timeout_s, context, self._forget)
        if not batch.add(call):
            raise RuntimeError(
                f"an item is larger by batch_size_fn than a whole batch may be, max_batch_size="
                f"{settings.max_batch_size}: raise max_batch_size, make the item smaller, or check batch_size_fn"
            )
        if self._forming:
            self._forming[-1].is_closed = True  # those that come later come after this call
        self._forming.append(batch)

    def _forget(self, batch: FormingBatch) -> None:
        """Drop a batch that all callers have left."""
        is_first = batch is self._forming[0]
        self._forming.remove(batch)
        if is_first:
            self._disarm()
            self._look_at_next()
            self._advance()

    def _advance(self) -> None:
        """Start every batch that may start, and set the alarm for the next one."""
        while self._forming and self._turns < self._settings().max_concurrent_batches:
            first = self._forming[0]
            if not (first.is_closed or first.is_due):
                self._arm(first)
                return
            self._disarm()
            self._forming.popleft()
            self._look_at_next()
            self._start(first)

    def _look_at_next(self) -> None:
        """See whether the batch that is the first now has been waiting for too long, and by which settings."""
        if self._forming:
            self._form_anew()
            self._check_clock()

    def _check_clock(self) -> None:
        if self._forming and self.loop.time() >= self._forming[0].due:
            self._forming[0].is_due = True

    def _arm(self, batch: FormingBatch) -> None:
        if self._alarm is None:
            self._alarm = self.loop.call_at(batch.due, self._ring)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        # The clock may be a little behind the alarm, so what has rung is remembered.
        self._alarm = None
        self._forming[0].is_due = True
        self._advance()

    def _form_anew(self) -> None:
        """Let the batches that wait go by new settings, if there are any, now that the first has changed."""
        if self._forming[0].settings is self._settings():
            return
        waiting = list(self._forming)
        self._forming.clear()
        for batch in waiting:
            since = batch.due - batch.settings.batch_wait_timeout_s
            for call in batch.calls:
                try:
                    if not self._joins_last(call):
                        self._open(call, since, batch.context.copy())
                except Exception as error:  # it was small enough before, and no longer is
                    call.holder = None
                    call.fail(error)

    def _start(self, batch: FormingBatch) -> None:
        self._turns += 1
        now = time.time()
        if self._measures is not None:
            settings = batch.settings
            batch.started = self.loop.time()
            waited = batch.started - batch.due + settings.batch_wait_timeout_s
            queued = sum(len(other.calls) for other in self._forming)
            self._measures.started(waited, batch.size, settings.max_batch_size, queued)
        parts = runs(batch, self._is_over)
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
                _logger.warning("a batch failed that nobody waited for any more", exc_info=error)
            part.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._is_over(part)

    def _is_over(self, part: RunningBatch) -> None:
        del self._running[part]
        part.formed.parts_left -= 1
        if not part.formed.parts_left:
            self._turns -= 1
            if self._measures is not None:
                self._measures.ended(self.loop.time() - part.formed.started)
            self._check_clock()
            self._advance()
