"""The actor that each worker of a run is."""

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
from skate.train._reports.messages import BEGIN, Failed, Finished, Message
from skate.train._workers import sessions, stacks
from skate.util import _interfaces

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Whereabouts:
    """Where a worker runs."""

    node_id: str
    node_ip: str
    hostname: str
    pid: int
    gpu_ids: tuple[str, ...]


class Worker:
    """Runs a training function, and hands on what it says."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._assignment: sessions.Assignment | None = None
        self._current: sessions.Session | None = None
        self._thread: int | None = None  # that the training function runs in
        self._observer = stacks.Observer()

    def whereabouts(self) -> Whereabouts:
        """Return where this worker runs."""
        context = skate.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        return Whereabouts(
            context.get_node_id(),
            _interfaces.node_address(),
            socket.gethostname(),
            os.getpid(),
            tuple(map(str, gpus)),
        )

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function here."""
        return function(*args, **kwargs)

    def assign(self, assignment: sessions.Assignment, environment: Mapping[str, str]) -> None:
        """Take one's rank and what else there is to know before training."""
        os.environ.update(environment)
        self._assignment = assignment
        self._current = sessions.Session(assignment, self._said.put)
        sessions.enter(self._current)

    def run(self, boxed: list[Any]) -> None:
        """Run the training function; what comes of it is among the messages.

        Args:
            boxed: A reference to the function and what it runs in, in a list: it is fetched here, so that one that
                cannot be loaded in this process is a failure like others.
        """
        session = self._current
        assert session is not None
        self._thread = threading.get_ident()
        try:
            function, context = skate.get(boxed[0])
            # Asked, not told: whoever watches over this worker knows that it has begun, wherever it hangs then.
            session.ask(BEGIN)
            with context():
                value = function()
            session.finish()
            self._said.put(Finished(_returned(value) if session.place.world_rank == 0 else None))
        except BaseException as error:
            self._said.put(Failed(_portable(error), traceback.format_exc(), time.time()))
            session.finish()  # what was reported before is a checkpoint to go on from
        finally:
            self._thread = None
            self._observer = stacks.Observer()  # which keeps a frame, and so what is in it
            self._said.put(None)

    def messages(self) -> Iterator[Message]:
        """Yield what the training function says, until it has ended."""
        while (message := self._said.get()) is not None:
            yield message

    def stand(self) -> stacks.Stand | None:
        """Return where the training function is; None if it does not run."""
        if self._thread is None or self._current is None:
            return None
        return self._observer.stand(self._thread, self._current.place.world_size)

    def moved(self) -> int:
        """Return how many bytes of checkpoints have been stored, so that uploads can be seen to get on."""
        assert self._current is not None
        return self._current.moved

    def answer(self, number: int, value: Any) -> None:
        """Hand over the answer to a question that the training function has asked."""
        assert self._current is not None
        self._current.answer(number, value)


def _returned(value: Any) -> Any:
    """Return the training function's value, or None if it cannot be told: for that, the run has not failed."""
    try:
        skate.cloudpickle.dumps(value)
    except Exception as error:
        log.warning(
            "the training function returned a %s that cannot be serialised (%s): Result.return_value will be None. "
            "Return numbers, texts or arrays, and put models into a checkpoint",
            type(value).__name__,
            error,
        )
        return None
    return value


def _portable(error: BaseException) -> BaseException:
    """Return the error, or one that says the same if it cannot be told to another process."""
    try:
        skate.cloudpickle.loads(skate.cloudpickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
