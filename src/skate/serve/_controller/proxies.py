"""The proxy as the controller keeps it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import skate
from skate.serve._controller.metrics import record_proxy, record_proxy_stopped
from skate.serve._controller.records import ProxyRecord
from skate.serve._ids import NAMESPACE, PROXY_PREFIX, new_id
from skate.serve._observability.options import current_options
from skate.serve._process import actor_class, ask, ended, surroundings_of_proxy
from skate.serve._proxy import Proxy
from skate.serve._schema.statuses import ProxyStatus
from skate.util import get_node_ip_address

__all__ = ["ProxyKeeper"]

logger = logging.getLogger("skate.serve")


class ProxyKeeper:
    """Starts the proxy when it is first wanted, and again if it dies. On the controller's loop.

    Args:
        http: How HTTP is taken; None for not at all.
        grpc: How gRPC is taken; None for not at all.
        note: Called whenever anything has changed.
    """

    def __init__(
        self, http: dict[str, Any] | None, grpc: dict[str, Any] | None, note: Callable[[], None]
    ) -> None:
        self._http = http
        self._grpc = grpc
        self._note = note
        self._name: str | None = None  # of its actor, from before that is made
        self._actor: Any = None
        self._info: dict[str, Any] | None = None
        self._starting: asyncio.Task[dict[str, Any]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def options(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """How HTTP and gRPC are taken; None where they are not."""
        return self._http, self._grpc

    def statuses(self) -> dict[str, ProxyStatus]:
        """Return how the proxy fares, by node."""
        if self._http is None:
            return {}
        status = ProxyStatus.HEALTHY if self._info is not None else ProxyStatus.STARTING
        return {skate.get_runtime_context().get_node_id(): status}

    @property
    def is_running(self) -> bool:
        """Whether it listens."""
        return self._info is not None

    def record(self) -> ProxyRecord | None:
        """Return what another controller would have to know."""
        return None if self._name is None else ProxyRecord(self._name, self._info)

    def adopt(self, record: ProxyRecord) -> None:
        """Go on with the proxy that another controller has started."""
        self._name = record.actor
        if record.info is None:
            self._starting = asyncio.ensure_future(self._start())
        else:
            self._runs(record.info)

    async def start(self) -> dict[str, Any] | None:
        """See that it runs; returns where it listens."""
        if self._http is None:
            return None
        if self._info is not None:
            return self._info
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        try:
            return await asyncio.shield(self._starting)
        finally:
            if self._starting is not None and self._starting.done():
                self._starting = None

    async def _start(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        if self._name is None:
            self._name = f"{PROXY_PREFIX}{new_id()}"
            self._note()
        made = actor_class(Proxy, "ProxyActor").options(
            name=self._name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            runtime_env=surroundings_of_proxy(),
            max_concurrency=8,
        )
        self._actor = await loop.run_in_executor(
            None, lambda: made.remote(self._http, self._grpc, observability=current_options())
        )
        try:
            info: dict[str, Any] = await ask(self._actor.start)
        except Exception:
            self._name = None
            await loop.run_in_executor(None, skate.kill, self._actor)
            raise
        self._runs(info)
        return info

    def _runs(self, info: dict[str, Any]) -> None:
        self._info = info
        assert self._http is not None
        self._http = {**self._http, "port": info["http"][1]}  # the same one if it has to be started again
        if self._grpc is not None:
            self._grpc = {**self._grpc, "port": info["grpc"][1]}
        self._note()
        record_proxy(*_here(), ProxyStatus.HEALTHY.to_numeric())
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        try:
            await self._find()
            await ended(self._actor)
        except Exception as error:
            if not self._is_stopping:
                logger.warning("The proxy ended: %s. It is started again.", error)
                self._info = self._name = self._actor = None
                self._note()
                record_proxy(*_here(), ProxyStatus.STARTING.to_numeric())
                self._starting = asyncio.ensure_future(self._start())

    async def _find(self) -> None:
        if self._actor is None and self._name is not None:  # another controller has made it
            loop = asyncio.get_running_loop()
            self._actor = await loop.run_in_executor(None, skate.get_actor, self._name, NAMESPACE)

    async def stop(self) -> None:
        """Stop it."""
        self._is_stopping = True
        if self._name is None:
            return
        began = time.perf_counter()
        try:
            async with asyncio.timeout(5):
                await self._find()
                await ask(self._actor.stop)
        except Exception as error:
            logger.debug("The proxy did not stop by itself: %s", error)
        if self._actor is not None:
            await asyncio.get_running_loop().run_in_executor(None, skate.kill, self._actor)
        self._name = self._info = None
        record_proxy_stopped(*_here(), time.perf_counter() - began)


def _here() -> tuple[str, str]:
    return skate.get_runtime_context().get_node_id(), get_node_ip_address()
