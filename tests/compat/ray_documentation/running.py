"""Runs a page or a file on Skate, in a process and in a scratch folder of its own."""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.compat.ray_documentation import page_program
from tests.compat.ray_documentation.examples import File, Page
from tests.compat.ray_documentation.pages import Block

ROOT = Path(__file__).parents[3]
SHOWN = 6000  # characters of the output that are kept of an example that does not pass
SECONDS_TO_EXIT = 60  # for a page whose last block has ended

# Fixed ports, processes and shared memory of an example are its own, and end with it. Some examples install or remove
# packages: the environment of this program is read-only for them, and they reach no index of packages.
NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
READ_ONLY = sorted({sys.prefix, sys.base_prefix})
IN_NAMESPACES = " && ".join(
    [
        "ip link set lo up",
        "mount -t tmpfs tmpfs /dev/shm",
        *(
            f"mount --bind {path} {path} && mount -o remount,bind,ro {path}"
            for path in map(shlex.quote, READ_ONLY)
        ),
        '"$@"; exit $?',
    ]
)

# Requests for packages and models fail at once; without this, libraries try for minutes to reach a host.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "HF_HUB_OFFLINE": "1"}
FOREIGN = ("RAY_", "SKATE_", "PYTEST_", "PIP_", "HF_")  # variables that examples do not inherit

# Examples are written for a machine with some CPUs. Tasks and actors count them, and do not depend on their speed.
CPUS = 8
PROCESSORS = f"""\
import os

os.cpu_count = lambda: {CPUS}
os.sched_getaffinity = lambda pid: set(range({CPUS}))
"""

# Ray's commands, and the modules of Skate that have the same commands.
COMMANDS = {"ray": "skate.cli", "serve": "skate.cli serve"}

ERROR_LINE = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning|Timeout|Stop\w*)\b.*")

State = Literal["passed", "output differs", "failed", "timed out", "skipped by the page"]


@dataclass(frozen=True)
class Outcome:
    """The result of running an example.

    Attributes:
        id: The page and the number of the block, or the file.
        detail: The last line of the error, or the output that differs; empty if it passed.
        printed: The end of what it printed, if it did not pass.
    """

    area: str
    id: str
    state: State
    seconds: float = 0.0
    detail: str = ""
    printed: str = ""


def run_example(example: Page | File, timeout: float) -> Iterator[Outcome]:
    """Run a page or a file, and yield an outcome for each of its examples."""
    if isinstance(example, Page):
        return run_page(example, timeout)
    return iter([run_file(example, timeout)])


def run_file(file: File, timeout: float) -> Outcome:
    """Run a Python file as a program."""
    with scratch_folder() as folder:
        path = copied(file.path, folder)
        started = time.monotonic()
        status, printed = run_program([str(path)], folder, timeout)
    seconds = time.monotonic() - started
    if status == 0:
        return Outcome(file.area, file.name, "passed", seconds)
    if status is None:
        return Outcome(file.area, file.name, "timed out", seconds, f"after {timeout:.0f} s", printed[-SHOWN:])
    detail = last_error(printed) or f"ended with status {status}"
    return Outcome(file.area, file.name, "failed", seconds, detail, printed[-SHOWN:])


def copied(file: Path, folder: Path) -> Path:
    """Copy a file with the folder it is in, whose modules it may import, and return its copy.

    Modules named like an installed one stay out: they would be imported instead of it, by libraries too.
    """
    hiding = [
        path.name
        for path in file.parent.glob("*.py")
        if path != file and importlib.util.find_spec(path.stem) is not None
    ]
    target = folder / "source" / file.parent.name
    shutil.copytree(file.parent, target, ignore=lambda where, _: hiding if where == str(file.parent) else [])
    return target / file.name


def run_page(page: Page, timeout: float) -> Iterator[Outcome]:
    """Run the blocks of a page as one program.

    If a block ends the process, or does not end, the page runs again without it for the sake of later blocks.
    """
    outcomes: dict[int, Outcome] = {}
    while pending := [
        block for block in page.blocks if not block.is_skipped and block.number not in outcomes
    ]:
        ran = [
            block
            for block in page.blocks
            if not block.is_skipped and not has_ended(outcomes.get(block.number))
        ]
        for outcome, number in run_blocks(page, ran, timeout):
            outcomes.setdefault(number, outcome)
        assert any(block.number in outcomes for block in pending), f"no block of {page.name} has an outcome"
    for block in page.blocks:
        if not block.is_example:
            continue
        if block.is_skipped:
            yield Outcome(page.area, f"{page.name}:{block.number}", "skipped by the page")
        else:
            yield outcomes[block.number]


def has_ended(outcome: Outcome | None) -> bool:
    """Return whether a block ended its process, so that it must not run again."""
    return outcome is not None and (
        outcome.state == "timed out" or outcome.detail.startswith("the process ended")
    )


def run_blocks(page: Page, blocks: list[Block], timeout: float) -> Iterator[tuple[Outcome, int]]:
    """Run blocks in one process; yield an outcome for each that started, with its number."""
    with scratch_folder() as folder:
        results = folder / "results.jsonl"
        write_page(page, blocks, folder, timeout)
        program = [page_program.__file__, str(folder / "blocks.json"), str(results)]
        status, printed = run_program(program, folder, timeout * len(blocks) + SECONDS_TO_EXIT)
        lines = results.read_text().splitlines() if results.exists() else []
    ended = {line["number"]: line for line in map(json.loads, lines) if not line["started"]}
    started = [line["number"] for line in map(json.loads, lines) if line["started"]]
    if not started:  # it did not even come to its first block
        started = [blocks[0].number]
    for block in blocks:
        if block.number not in started:
            continue
        id = f"{page.name}:{block.number}"
        if block.number in ended:
            yield compared(page.area, id, block, ended[block.number], printed), block.number
        elif "Timeout (" in printed or status is None:
            yield (
                Outcome(page.area, id, "timed out", timeout, f"after {timeout:.0f} s", printed[-SHOWN:]),
                block.number,
            )
        else:
            detail = f"the process ended with status {status}"
            yield Outcome(page.area, id, "failed", 0.0, detail, printed[-SHOWN:]), block.number


def write_page(page: Page, blocks: list[Block], folder: Path, timeout: float) -> None:
    """Write the code of a page as one file, for `inspect` and tracebacks, and the list of its blocks."""
    written = []
    source = ""
    for block in blocks:
        source += f"# {page.name}, line {block.line}\n"
        written.append(
            {
                "number": block.number,
                "code": block.code,
                "offset": source.count("\n"),
                "interactive": block.is_interactive,
            }
        )
        source += block.code + "\n"
    file = folder / "page.py"
    file.write_text(source)
    (folder / "blocks.json").write_text(
        json.dumps({"file": str(file), "timeout": timeout, "blocks": written})
    )


def compared(area: str, id: str, block: Block, result: dict[str, Any], printed: str) -> Outcome:
    """Return the outcome of a block that ended: compare its output, or its error, with the page's."""
    output, error = result["output"], result["error"]
    seconds = result["seconds"]
    expected = block.expected
    if expected is not None and expected.startswith("Traceback (most recent call last):"):
        output, expected = f"{error}\n", expected.rstrip().splitlines()[-1] + "\n"
    elif error is not None:
        return Outcome(
            area, id, "failed", seconds, last_error(error) or error.splitlines()[0], printed[-SHOWN:]
        )
    if expected is None or doctest.OutputChecker().check_output(expected, output, block.flags):
        return Outcome(area, id, "passed", seconds)
    shown = f"expected:\n{expected}\nprinted:\n{output}"
    return Outcome(
        area, id, "output differs", seconds, "the output is not the one of the page", shown[-SHOWN:]
    )


def run_program(program: list[str], folder: Path, timeout: float) -> tuple[int | None, str]:
    """Run a program with `skate run`; return its exit status, None after the timeout, and what it printed."""
    command = [*namespaces(), sys.executable, "-m", "skate.cli", "run", *program]
    output = folder / "output.txt"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=folder / "work",
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nothing is left of it
            process.wait()
    return status, output.read_text(errors="replace")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program: this one's, without settings of Ray and Skate."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder / 'site'}",
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        **OFFLINE,
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder with an empty working folder, home and temporary folder, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="rd-", dir="/tmp"))  # short: sockets have paths below it
    for name in ("work", "home", "tmp", "bin", "site"):
        (folder / name).mkdir()
    (folder / "site" / "sitecustomize.py").write_text(PROCESSORS)
    for name, command in COMMANDS.items():
        file = folder / "bin" / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {command} "$@"\n')
        file.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def namespaces() -> list[str]:
    """Return the start of a command that runs in namespaces of its own; nothing where that is not allowed."""
    command = [*NAMESPACES, "sh", "-c", IN_NAMESPACES, "sh"]
    try:
        allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    return command if allowed else []


def last_error(printed: str) -> str:
    """Return the last line of a program's output that names an exception."""
    errors = [line for line in printed.splitlines() if ERROR_LINE.match(line)]
    return errors[-1][:300] if errors else ""
