"""A pytest plugin: the command line, and a long-lived node for one test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

import skate
from skate._api import nodes
from skate.cli import main

PROGRAM_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Done:
    """What a command wrote, and how it ended."""

    out: str
    err: str
    status: int

    def checked(self, arguments: tuple[str, ...], status: int) -> Done:
        """Fail if it has not ended with this status."""
        text = f"skate {' '.join(arguments)} ended with {self.status}:\n{self.err}{self.out}"
        assert self.status == status, text
        return self


class Cli:
    """Runs `skate`, and programs, with the sessions' folder of the test."""

    def __call__(self, *arguments: str, status: int = 0) -> Done:
        """Run a command in this process: quicker, and attached to the session that the test has, if any."""
        result = CliRunner().invoke(main, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        done = Done(result.stdout, result.stderr, result.exit_code)
        return done.checked(arguments, status)

    def process(self, *arguments: str, status: int = 0, **environment: str) -> Done:
        """Run a command in a process of its own."""
        done = self.run([sys.executable, "-m", "skate.cli", *arguments], **environment)
        return done.checked(arguments, status)

    def program(self, text: str, **environment: str) -> Done:
        """Run a Python program."""
        done = self.run([sys.executable, "-c", text], **environment)
        assert done.status == 0, done.err
        return done

    @staticmethod
    def run(command: list[str], **environment: str) -> Done:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROGRAM_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        return Done(done.stdout, done.stderr, done.returncode)


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """The command line, where no node runs yet."""
    root = Path(tempfile.mkdtemp(prefix="skc-"))
    monkeypatch.setenv("SKATE_TMPDIR", str(root))
    yield Cli()
    skate.shutdown()
    nodes.stop(private=True)
    shutil.rmtree(root)


@pytest.fixture
def node(cli: Cli) -> nodes.NodeRecord:
    """A long-lived node with two CPUs."""
    return nodes.start(num_cpus=2)
