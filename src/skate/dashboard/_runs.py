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

    def _session(self) -> str:
        return self._node.local_session("Runs on a Ray cluster are not recorded: see Ray's own dashboard.")

    async def list(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        """Return all runs, the latest first."""
        runs = await self._node.run(read_runs, self._session())
        return {"runs": runs[::-1]}

    async def read(self, path: Mapping[str, str], _: QueryParams) -> dict[str, Any]:
        """Return one run with its details."""
        id = path["id"]
        run = await self._node.run(read_run, self._session(), id)
        if run is None:
            raise Problem(404, f"There is no run {id!r}.")
        return run
