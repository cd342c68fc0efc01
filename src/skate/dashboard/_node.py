"""The connection of the dashboard to its node, which may end and come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from skate._api.observer import Observer
from skate.dashboard._calls import Caller
from skate.dashboard._topics import Problem
from skate.exceptions import NodeDiedError, RayError, RaySystemError

__all__ = ["Node"]

ANSWER_TIMEOUT_S: Final = 30.0
RECONNECT_INTERVAL_S: Final = 1.0
MAX_AGE_S: Final = 0.9  # of a shared answer: just below the interval of live topics
THREADS: Final = 4
_LOST: Final = (
    NodeDiedError,
    RaySystemError,
    ConnectionError,
)  # errors of a connection to a node that is gone

logger = logging.getLogger(__name__)
T = TypeVar("T")


class Node:
    """Asks a node from threads, reconnects when it is gone, and shares answers between topics.

    Args:
        connect: Connects to the node; raises ConnectionError if there is none.
    """

    def __init__(self, connect: Callable[[], Observer]) -> None:
        self._connect = connect
        self._observer: Observer | None = None
        self._about: dict[str, Any] = {}
        self._problem: str | None = "The dashboard is connecting to the node."
        self._threads = ThreadPoolExecutor(THREADS, "skate-dashboard")
        self._caller = Caller()
        self._shared: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}
        self._lost = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self.generation = 0  # number of nodes so far

    async def start(self) -> None:
        """Connect to the node, and keep the connection.

        Raises:
            ConnectionError: There is no node.
        """
        await self._open()
        self._supervisor = asyncio.create_task(self._supervise(), name="dashboard connection")

    async def close(self) -> None:
        """End the connection."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        observer, self._observer = self._observer, None
        if observer is not None:
            await self._run(observer.close)
        await self._caller.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def is_connected(self) -> bool:
        """Whether there is a node."""
        return self._observer is not None

    @property
    def session(self) -> str | None:
        """The folder of the session; None for a node that is not one of Skate's, or if there is none."""
        observer = self._observer
        return observer.session if observer is not None and observer.is_local else None

    @property
    def observer(self) -> Observer:
        """The connection.

        Raises:
            Problem: There is none.
        """
        if self._observer is None:
            raise Problem(503, self._problem or "There is no node.")
        return self._observer

    def local_session(self, elsewhere: str) -> str:
        """Return the folder of the session.

        Args:
            elsewhere: What to do instead with a Ray cluster, whose files are not on this machine.

        Raises:
            Problem: There is no node, or it is a Ray cluster.
        """
        observer = self.observer
        if not observer.is_local:
            raise Problem(404, elsewhere)
        return observer.session

    def describe(self) -> dict[str, Any]:
        """Return the facts about the session, with whether it is connected."""
        return {**self._about, "connected": self.is_connected, "problem": self._problem}

    # ------------------------------------------------------------ questions

    async def ask(self, question: Callable[[Observer], T]) -> T:
        """Ask the node from a thread.

        Raises:
            Problem: There is no node, or it does not answer.
        """
        observer = self.observer
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._run(question, observer)
        except TimeoutError:
            raise Problem(504, f"The node has not answered for {ANSWER_TIMEOUT_S:g} seconds.") from None
        except _LOST as error:
            self._drop(observer, error)
            raise Problem(503, self._problem or str(error)) from error
        except Exception as error:
            if not await self._run(observer.has_ended):
                raise
            self._drop(observer, ConnectionError(f"no Ray cluster answers at {observer.session}"))
            raise Problem(503, self._problem or str(error)) from error

    async def share(
        self, key: Hashable, compute: Callable[[], Awaitable[T]], max_age_s: float = MAX_AGE_S
    ) -> T:
        """Return the result of a computation, or one that is recent or under way."""
        now = asyncio.get_running_loop().time()
        started, future = self._shared.get(key, (0.0, None))
        if future is None or (future.done() and now - started > max_age_s):
            future = asyncio.ensure_future(compute())
            future.add_done_callback(_retrieve)
            self._shared[key] = now, future
            for old in [old for old, (when, _) in self._shared.items() if now - when > 60.0]:
                del self._shared[old]
        # A request that is cancelled does not cancel the computation for the others.
        result: T = await asyncio.shield(future)
        return result

    async def call(
        self, function: Callable[[], T], *, as_ray: bool = False, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> T:
        """Call a function that uses actors of the session, in a thread whose session it is.

        Args:
            function: The function.
            as_ray: Whether `import ray` imports Skate in the workers of actors that the function creates.
            timeout_s: Seconds that it may take.

        Raises:
            Problem: There is no node of Skate's, or it does not answer.
        """
        observer = self.observer
        session = self.local_session("This is available for nodes of Skate only: see Ray's own dashboard.")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._caller.call(session, function, as_ray=as_ray)
        except TimeoutError:
            raise Problem(504, f"There is no answer after {timeout_s:g} seconds.") from None
        except _LOST as error:
            self._drop(observer, error)
            raise Problem(503, self._problem or str(error)) from error
        except RayError as error:  # the actor has died, for example
            raise Problem(503, str(error)) from error

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that blocks in a thread."""
        return await self._run(function, *args)

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    # ------------------------------------------------------------ the connection

    async def _open(self) -> None:
        observer = await self._run(self._connect)
        try:
            self._about = await self._run(observer.about)
        except BaseException:
            self._threads.submit(_close, observer)
            raise
        self._observer, self._problem = observer, None
        self.generation += 1
        self._shared.clear()
        self._lost.clear()

    def _drop(self, observer: Observer, error: BaseException) -> None:
        if self._observer is observer:
            self._observer = None
            self._problem = f"The node is gone: {error}"
            self._lost.set()
            self._threads.submit(_close, observer)

    async def _supervise(self) -> None:
        while True:
            await self._lost.wait()
            await asyncio.sleep(RECONNECT_INTERVAL_S)
            try:
                await self._open()
            except Exception as error:  # it is tried again, whatever it is
                logger.debug("The node cannot be reached", exc_info=True)
                self._problem = f"The node is gone. {error}"


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Mark the error of a computation as seen: the request that wanted it may have been cancelled."""
    if not future.cancelled():
        future.exception()


def _close(observer: Observer) -> None:
    try:
        observer.close()
    except (RayError, OSError) as error:
        logger.debug("The connection to a node that is gone did not close: %s", error)
