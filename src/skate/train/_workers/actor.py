"""The actor of a worker."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import skate
from skate._api import tracing
from skate.train._reports.messages import BEGIN, Failed, Finished, Message
from skate.train._workers import sessions, stacks
from skate.util import _interfaces

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerLocation:
    """The node, process and GPUs of a worker."""

    node_id: str
    node_ip: str
    hostname: str
    pid: int
    gpu_ids: tuple[str, ...]


class Worker:
    """Runs a training function, and streams its messages to the controller."""

    def __init__(self) -> None:
        self._outbox: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._assignment: sessions.Assignment | None = None
        self._session: sessions.Session | None = None
        self._thread: int | None = None  # the thread of the training function
        self._observer = stacks.Observer()

    def locate(self) -> WorkerLocation:
        """Return where this worker runs."""
        context = skate.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return WorkerLocation(
            context.get_node_id(),
            _interfaces.node_address(),
            socket.gethostname(),
            os.getpid(),
            tuple(map(str, gpus)),
        )

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function in this process."""
        return function(*args, **kwargs)

    def assign(self, assignment: sessions.Assignment, environment: Mapping[str, str]) -> None:
        """Take the ranks and the other inputs of the training function."""
        os.environ.update(environment)
        self._assignment = assignment
        self._session = sessions.Session(assignment, self._outbox.put)
        sessions.set_current(self._session)

    def run(self, boxed: list[Any]) -> None:
        """Run the training function; its outcome is one of the messages.

        Args:
            boxed: A list with a reference to the function and its context manager. The reference is resolved here, so
                that a function that cannot be loaded in this process fails like any other.
        """
        session = self._session
        assert session is not None
        self._thread = threading.get_ident()
        try:
            function, context = skate.get(boxed[0])
            # A request, because its reply proves that the supervisor knows of the start, wherever the function hangs.
            session.request(BEGIN)
            rank = session.ranks.world_rank
            with tracing.span(f"train worker {rank}", {"world_rank": rank}), context():
                value = function()
            session.finish()
            self._outbox.put(Finished(_serializable(value) if session.ranks.world_rank == 0 else None))
        except BaseException as error:
            self._outbox.put(Failed(_portable(error), traceback.format_exc(), time.time()))
            session.finish()  # an earlier report may still complete a checkpoint to resume from
        finally:
            self._thread = None
            self._observer = stacks.Observer()  # the old one keeps a frame alive, with its variables
            self._outbox.put(None)

    def messages(self) -> Iterator[Message]:
        """Yield the messages of the training function until it has ended."""
        while (message := self._outbox.get()) is not None:
            yield message

    def progress(self) -> stacks.WorkerProgress | None:
        """Return the current position of the training function; None if it does not run."""
        if self._thread is None or self._session is None:
            return None
        return self._observer.observe(self._thread, self._session.ranks.world_size)

    def uploaded_bytes(self) -> int:
        """Return how many bytes of checkpoints have been stored, by which uploads show progress."""
        assert self._session is not None
        return self._session.uploaded_bytes

    def reply(self, number: int, value: Any) -> None:
        """Deliver the reply to a request of the training function."""
        assert self._session is not None
        self._session.reply(number, value)


def _serializable(value: Any) -> Any:
    """Return the training function's value, or None if it cannot be serialized, which does not fail the run."""
    try:
        skate.cloudpickle.dumps(value)
    except Exception as error:
        log.warning(
            "the training function returned a %s that cannot be serialized (%s): Result.return_value will be None. "
            "Return numbers, strings or arrays, and put models into a checkpoint",
            type(value).__name__,
            error,
        )
        return None
    return value


def _portable(error: BaseException) -> BaseException:
    """Return the error, or a RuntimeError with its text if it cannot be sent to another process."""
    try:
        skate.cloudpickle.loads(skate.cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
