"""Supervision of the proxy."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import skate
from skate.serve._controller.metrics import record_proxy, record_proxy_stopped
from skate.serve._controller.records import ProxyRecord
from skate.serve._observability.options import current_options
from skate.serve._proxy import Proxy
from skate.serve._runtime.engine import actor_class, call_actor, proxy_runtime_env, wait_until_stopped
from skate.serve._runtime.ids import NAMESPACE, PROXY_PREFIX, new_id
from skate.serve._schema.statuses import ProxyStatus
from skate.util import get_node_ip_address

__all__ = ["ProxySupervisor"]

logger = logging.getLogger("skate.serve")


class ProxySupervisor:
    """Starts the proxy on first use and restarts it if it dies. Runs on the controller's loop.

    Args:
        http: The options of HTTP; None disables it.
        grpc: The options of gRPC; None disables it.
        mark_changed: Called after every change.
    """

    def __init__(
        self, http: dict[str, Any] | None, grpc: dict[str, Any] | None, mark_changed: Callable[[], None]
    ) -> None:
        self._http = http
        self._grpc = grpc
        self._mark_changed = mark_changed
        self._name: str | None = None  # of the actor; set before its creation
        self._actor: Any = None
        self._info: dict[str, Any] | None = None
        self._start_task: asyncio.Task[dict[str, Any]] | None = None
        self._watch_task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def options(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The options of HTTP and gRPC; None where disabled."""
        return self._http, self._grpc

    def statuses(self) -> dict[str, ProxyStatus]:
        """Return the status of the proxy by node id."""
        if self._http is None:
            return {}
        status = ProxyStatus.HEALTHY if self._info is not None else ProxyStatus.STARTING
        return {skate.get_runtime_context().get_node_id(): status}

    @property
    def is_running(self) -> bool:
        """Whether the proxy listens."""
        return self._info is not None

    def record(self) -> ProxyRecord | None:
        """Return the state that a restarted controller needs."""
        return None if self._name is None else ProxyRecord(self._name, self._info)

    def recover(self, record: ProxyRecord) -> None:
        """Take over the proxy of a previous controller."""
        self._name = record.actor
        if record.info is None:
            self._start_task = asyncio.ensure_future(self._start())
        else:
            self._handle_started(record.info)

    async def start(self) -> dict[str, Any] | None:
        """Start the proxy unless it runs; return its addresses."""
        if self._http is None:
            return None
        if self._info is not None:
            return self._info
        if self._start_task is None:
            self._start_task = asyncio.ensure_future(self._start())
        try:
            return await asyncio.shield(self._start_task)
        finally:
            if self._start_task is not None and self._start_task.done():
                self._start_task = None

    async def _start(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        if self._name is None:
            self._name = f"{PROXY_PREFIX}{new_id()}"
            self._mark_changed()
        proxy_class = actor_class(Proxy, "ProxyActor").options(
            name=self._name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            runtime_env=proxy_runtime_env(),
            max_concurrency=8,
        )
        self._actor = await loop.run_in_executor(
            None, lambda: proxy_class.remote(self._http, self._grpc, observability=current_options())
        )
        try:
            info: dict[str, Any] = await call_actor(self._actor.start)
        except Exception:
            self._name = None
            await loop.run_in_executor(None, skate.kill, self._actor)
            raise
        self._handle_started(info)
        return info

    def _handle_started(self, info: dict[str, Any]) -> None:
        self._info = info
        assert self._http is not None
        self._http = {**self._http, "port": info["http"][1]}  # a restarted proxy listens on the same port
        if self._grpc is not None:
            self._grpc = {**self._grpc, "port": info["grpc"][1]}
        self._mark_changed()
        record_proxy(*_this_node(), ProxyStatus.HEALTHY.to_numeric())
        self._watch_task = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        try:
            await self._find_actor()
            await wait_until_stopped(self._actor)
        except Exception as error:
            if not self._is_stopping:
                logger.warning("The proxy ended: %s. Starting it again.", error)
                self._info = self._name = self._actor = None
                self._mark_changed()
                record_proxy(*_this_node(), ProxyStatus.STARTING.to_numeric())
                self._start_task = asyncio.ensure_future(self._start())

    async def _find_actor(self) -> None:
        if self._actor is None and self._name is not None:  # created by a previous controller
            loop = asyncio.get_running_loop()
            self._actor = await loop.run_in_executor(None, skate.get_actor, self._name, NAMESPACE)

    async def stop(self) -> None:
        """Stop the proxy."""
        self._is_stopping = True
        if self._name is None:
            return
        started_at = time.perf_counter()
        try:
            async with asyncio.timeout(5):
                await self._find_actor()
                await call_actor(self._actor.stop)
        except Exception as error:
            logger.debug("The proxy did not stop gracefully: %s", error)
        if self._actor is not None:
            await asyncio.get_running_loop().run_in_executor(None, skate.kill, self._actor)
        self._name = self._info = None
        record_proxy_stopped(*_this_node(), time.perf_counter() - started_at)


def _this_node() -> tuple[str, str]:
    return skate.get_runtime_context().get_node_id(), get_node_ip_address()
