"""Runs of datasets, training and tuning: the records that they leave in the folder of the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import QueryParams

from skate.dashboard._node import Node
from skate.dashboard._topics import Problem
from skate.util._run_records import read_run, read_runs

__all__ = ["Runs"]


class Runs:
    """The topics /state/runs and /state/runs/ID.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def _session(self) -> str | None:
        session = self._node.session
        if session is None:
            self._node.observer  # noqa: B018 - raises if there is no node
        return session

    async def list(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        """Return all runs, the latest first."""
        session = self._session()
        runs = [] if session is None else await self._node.run(read_runs, session)
        return {"runs": runs[::-1]}

    async def read(self, path: Mapping[str, str], _: QueryParams) -> dict[str, Any]:
        """Return one run with its details."""
        session, id = self._session(), path["id"]
        run = None if session is None else await self._node.run(read_run, session, id)
        if run is None:
            raise Problem(404, f"There is no run {id!r}.")
        return run
