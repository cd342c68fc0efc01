"""A broker of taskiq that keeps tasks and results in files, for tests without a server."""

from __future__ import annotations

import asyncio
import pickle
import time
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

taskiq: Any = pytest.importorskip("taskiq")


class FolderResults(taskiq.AsyncResultBackend):  # type: ignore[misc] # the library may be missing
    """Keeps each result in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def set_result(self, task_id: str, result: Any) -> None:
        _write(self.folder / f"{task_id}.result", pickle.dumps(result))

    async def is_result_ready(self, task_id: str) -> bool:
        return (self.folder / f"{task_id}.result").exists()

    async def get_result(self, task_id: str, with_logs: bool = False) -> Any:
        return pickle.loads((self.folder / f"{task_id}.result").read_bytes())


class FolderBroker(taskiq.AsyncBroker):  # type: ignore[misc] # likewise
    """Keeps each task in a file, whose name ends with `.task`, and with `.taken` until its acknowledgement.

    Args:
        folder: The folder of all queues.
        queue_name: Name of the queue.
        keeps_results: Whether results are kept too.
    """

    def __init__(self, folder: str, queue_name: str, keeps_results: bool = True) -> None:
        super().__init__()
        if keeps_results:
            self.result_backend = FolderResults(Path(folder))
        self.folder = Path(folder) / queue_name
        self.is_connected = False

    async def startup(self) -> None:
        await super().startup()
        self.folder.mkdir(exist_ok=True)
        self.is_connected = True

    async def shutdown(self) -> None:
        await super().shutdown()
        self.is_connected = False

    async def kick(self, message: Any) -> None:
        assert self.is_connected
        _write(self.folder / f"{time.monotonic_ns():020}-{uuid.uuid4().hex}.task", message.message)

    async def listen(self) -> AsyncGenerator[Any, None]:
        while True:
            for path in sorted(self.folder.glob("*.task")):
                taken = path.rename(path.with_suffix(".taken"))

                async def ack(taken: Path = taken) -> None:
                    taken.unlink()  # noqa: ASYNC240 - it takes microseconds

                yield taskiq.AckableMessage(data=taken.read_bytes(), ack=ack)
            await asyncio.sleep(0.01)


def _write(path: Path, data: bytes) -> None:
    """Write a file that appears with all its content."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.rename(path)
