"""`breakpoint()` in a worker: the debugger opens on the driver's terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EVENT_TIMEOUT_S = 60.0
CTRL_C = "\x03"

PROGRAM = """
import asyncio, bdb, sys
import skate

skate.init(num_cpus=2)

@skate.remote
def double(number):
    breakpoint()
    return 2 * number

@skate.remote
class Doubler:
    async def double(self, number):
        breakpoint()
        await asyncio.sleep(0)
        return 2 * number

def show(name, ref):
    try:
        print(name, skate.get(ref), flush=True)
    except bdb.BdbQuit:
        print(name, "quit", flush=True)
    except KeyboardInterrupt:
        print(name, "interrupted", skate.get(ref), flush=True)

show("task", double.remote(21))
doubler = Doubler.remote()
show("actor", doubler.double.remote(22))
show("second", double.remote(23))
show("third", double.remote(24))
print(sys.stdin.readline().strip() if sys.argv[1:] else "", "bye", flush=True)
"""


class Terminal:
    """A program in the foreground of a pseudo-terminal."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self._master, slave = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, str(program), *arguments], preexec_fn=lambda: os.login_tty(os.dup(slave))
        )
        os.close(slave)
        self._text = ""

    def expect(self, text: str) -> None:
        """Wait until the program shows `text`, after what was expected before."""
        while text not in self._text:
            ready, _, _ = select.select([self._master], [], [], EVENT_TIMEOUT_S)
            assert ready, f"{text!r} did not come, but {self._text!r}"
            self._text += os.read(self._master, 65536).decode()
        self._text = self._text.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def terminal(program: Path) -> Iterator[Terminal]:
    terminal = Terminal(program, "read")
    yield terminal
    terminal.close()


def test_the_debugger_of_a_worker_opens_on_the_terminal_of_the_driver(terminal: Terminal) -> None:
    terminal.expect("-> return 2 * number")
    terminal.expect("(Pdb) ")
    terminal.type("p number\n")
    terminal.expect("21")
    terminal.expect("(Pdb) ")
    terminal.type("number = 50\n")
    terminal.expect("(Pdb) ")
    terminal.type("continue\n")
    terminal.expect("task 100")

    terminal.expect("(Pdb) ")  # of the actor: step past the end of the call
    terminal.type("next\n")
    terminal.expect("-> return 2 * number")
    terminal.expect("(Pdb) ")
    terminal.type("next\n")
    terminal.expect("actor 44")

    terminal.expect("(Pdb) ")  # of a function
    terminal.type("next\n")
    terminal.expect("--Return--")
    terminal.expect("(Pdb) ")
    terminal.type("quit\n")
    terminal.expect("second quit")

    terminal.expect("(Pdb) ")
    terminal.type(CTRL_C)
    terminal.expect("third interrupted 48")

    terminal.type("mine\n")  # the terminal is the program's own again
    terminal.expect("mine bye")
    assert terminal.process.wait(EVENT_TIMEOUT_S) == 0


def test_without_a_terminal_the_worker_says_how_to_attach(program: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        results = []
        for _ in range(4):
            said = process.stderr.readline()
            command = said.partition("Attach with: skate ")[2].split()
            debugger = subprocess.run(
                [sys.executable, "-m", "skate.cli", *command],
                input="p number\ncontinue\n",
                capture_output=True,
                text=True,
                timeout=EVENT_TIMEOUT_S,
                check=False,
            )
            results.append(debugger.stdout.splitlines()[2])
    assert results == ["(Pdb) 21", "(Pdb) 22", "(Pdb) 23", "(Pdb) 24"]
    assert process.returncode == 0
