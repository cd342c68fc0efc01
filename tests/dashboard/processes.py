"""A dashboard in a process of its own, as `skate dashboard` runs it, and a client of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.dashboard.support import EVENT_TIMEOUT_S


class Client:
    """A client of a dashboard, given its URL with the token."""

    def __init__(self, url: str) -> None:
        self.base, _, token = url.partition("/?token=")
        self.headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str) -> Any:
        return httpx.get(self.base + path, headers=self.headers, timeout=EVENT_TIMEOUT_S).json()

    @contextmanager
    def live(self, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """Subscribe to a path, and yield its events."""
        with httpx.stream(
            "GET", f"{self.base}/live", params={"path": path}, headers=self.headers, timeout=EVENT_TIMEOUT_S
        ) as response:
            yield self._events(response)

    @staticmethod
    def _events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


@contextmanager
def running(*arguments: str) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """Run `skate dashboard`, and end it with Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "skate.cli", "dashboard", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield Client(line.strip()), process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=EVENT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, said
    assert "Traceback" not in said
