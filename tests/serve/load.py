"""Constant load on an application, from threads of the test."""

from __future__ import annotations

import collections
import threading
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit


class Load:
    """Sends requests over HTTP, one after the other on each of several connections, until it is stopped."""

    def __init__(self, url: str, clients: int = 4, path: str = "/") -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._host, self._port, self._path = parts.hostname, parts.port, path
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self.answers: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def wait_for(self, answer: str, count: int = 1, timeout: float = 60) -> None:
        """Wait until an answer has been given so often."""
        with self._progress:
            assert self._progress.wait_for(lambda: self.answers[answer] >= count, timeout), self.answers

    def wait_for_more(self, count: int, timeout: float = 60) -> None:
        """Wait until so many further answers have been given."""
        with self._progress:
            target = self.answers.total() + count
            assert self._progress.wait_for(lambda: self.answers.total() >= target, timeout), self.answers

    def _run(self) -> None:
        connection = HTTPConnection(self._host, self._port, timeout=60)
        while not self._stop.is_set():
            try:
                connection.request("GET", self._path)
                response = connection.getresponse()
                body = response.read().decode()
            except OSError as error:
                self._fail(repr(error))
                connection.close()
                continue
            if response.status == 200:
                with self._progress:
                    self.answers[body] += 1
                    self._progress.notify_all()
            else:
                self._fail(f"{response.status} {body}")
        connection.close()

    def _fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)
