"""Runs of datasets, training and tuning: the records that they leave in the folder of the session."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import psutil
from starlette.datastructures import QueryParams

from skate.dashboard._node import Node
from skate.dashboard._topics import Problem

__all__ = ["Runs"]

SUFFIX: Final = ".json"
_SHOWN: Final = ("id", "kind", "name", "status", "started", "ended", "pid", "summary")


class Runs:
    """The topics /state/runs and /state/runs/ID.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    def _folder(self) -> str | None:
        session = self._node.session
        if session is None:
            self._node.observer  # noqa: B018 - raises if there is no node
            return None
        return os.path.join(session, "runs")

    async def list(self, _: Mapping[str, str], __: QueryParams) -> dict[str, Any]:
        """Return all runs, the latest first."""
        folder = self._folder()
        runs = [] if folder is None else await self._node.run(_read_all, folder)
        return {"runs": [{name: run.get(name) for name in _SHOWN} for run in runs]}

    async def read(self, path: Mapping[str, str], _: QueryParams) -> dict[str, Any]:
        """Return one run."""
        folder, id = self._folder(), path["id"]
        run = (
            None if folder is None or id != os.path.basename(id) else await self._node.run(_read, folder, id)
        )
        if run is None:
            raise Problem(404, f"There is no run {id!r}.")
        return run


def _read_all(folder: str) -> list[dict[str, Any]]:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []  # nothing has run
    ids = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    found = [run for id in ids if (run := _read(folder, id)) is not None]
    return sorted(found, key=lambda run: float(run.get("started") or 0.0), reverse=True)


def _read(folder: str, id: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, id + SUFFIX), encoding="utf-8") as file:
            run = json.load(file)
    except (FileNotFoundError, ValueError):  # removed, or not a record
        return None
    if not isinstance(run, dict):
        return None
    run["id"] = id
    if run.get("status") == "RUNNING" and not psutil.pid_exists(int(run.get("pid") or 0)):
        run["status"] = "INTERRUPTED"
    return run
