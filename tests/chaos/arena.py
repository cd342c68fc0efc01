"""Driver programs in processes of their own, and what is left of them after something was killed.

Every process that descends from a driver inherits a variable with the driver's tag in its environment, also one that
has detached itself from its parents. So a test can find, count and kill exactly the processes that it has caused.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, NoReturn

from tests import leaks
from tests.chaos import attacks

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
TAG = "SKATE_CHAOS_TAG"

# Nothing here takes this long; what does hangs.
EVENT_TIMEOUT_S = 45.0


class Arena:
    """A folder for the sessions of a test, and the drivers that run in it."""

    def __init__(self) -> None:
        # Short, because the path of a socket has about 100 characters at most.
        self.folder = Path(tempfile.mkdtemp(prefix="skc-"))
        self.drivers: list[Driver] = []

    def start(
        self,
        program: str,
        *arguments: object,
        env: dict[str, str] | None = None,
        terminal: int | None = None,
        within: Sequence[str] = (),
    ) -> Driver:
        """Run a program of the `programs` folder; its standard input stays open until `Driver.let_end`.

        `within` begins the command, and runs what follows it.
        """
        driver = Driver(self, program, [str(a) for a in arguments], env or {}, terminal, within)
        self.drivers.append(driver)
        return driver

    def environment(self) -> dict[str, str]:
        """Return what a program needs to run in this arena."""
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            "SKATE_TMPDIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }

    def sessions(self) -> list[Path]:
        """Return the session folders of this arena, and its shared memory elsewhere."""
        folders = self.folder / f"skate-{os.getuid()}"
        found = sorted(folders.glob("*session-*"))
        shared = leaks.shared_memory_root()
        if shared.is_dir():
            found += sorted(path for path in shared.glob("*session-*") if self._is_ours(path))
        return found

    def _is_ours(self, shm: Path) -> bool:
        """Return whether shared memory belongs to a driver of this arena: the name of a session has its pid."""
        pid = shm.name.split("-")[-2]
        return pid in {str(each) for driver in self.drivers for each in driver.pids_seen}

    def leftovers(self) -> list[str]:
        """Return what the drivers have left, after giving it a moment to go away: processes and session folders."""

        def found() -> list[str]:
            processes = [describe(pid) for driver in self.drivers for pid in driver.processes()]
            return [*processes, *map(str, self.sessions())]

        deadline = time.monotonic() + leaks.GRACE_SECONDS
        while (left := found()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def close(self) -> None:
        """Kill what a failed test has left, and remove it."""
        for driver in self.drivers:
            driver.close()
        for path in self.sessions():
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)


class Driver:
    """A running driver program and everything that descends from it."""

    def __init__(
        self,
        arena: Arena,
        program: str,
        arguments: list[str],
        env: dict[str, str],
        terminal: int | None,
        within: Sequence[str],
    ) -> None:
        self.arena = arena
        self.tag = uuid.uuid4().hex
        read, write = os.pipe()
        self.progress = read
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the driver
        self.name = " ".join([program, *arguments])
        python = [*within, sys.executable, "-X", "faulthandler"]
        command = [*python, str(PROGRAMS / program), str(write), *arguments]
        environment = {**arena.environment(), **env, TAG: self.tag}
        if terminal is None:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self.errors,
                stderr=self.errors,
                env=environment,
                pass_fds=[write],
                start_new_session=True,
            )
        else:
            self.process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[write],
                # A session with the terminal as its own, so that Ctrl-C reaches its foreground group.
                preexec_fn=lambda: os.login_tty(os.dup(terminal)),
            )
        os.close(write)
        self.pid = self.process.pid
        self.pids_seen = {self.pid}

    # ------------------------------------------------------------ its progress

    def wait_for(self, mark: str, timeout_s: float = EVENT_TIMEOUT_S) -> None:
        """Read what the program reports until `mark` comes."""
        deadline = time.monotonic() + timeout_s
        seen = b""
        while mark.encode() + b"\n" not in seen:
            data = self._read(deadline, f"{mark!r}; it said {seen[-200:]!r}")
            if not data:
                self.fail(f"ended without saying {mark!r}; it said {seen[-200:]!r}")
            seen += data

    def read_steps(self, count: int) -> None:
        """Wait until the program has reported so many steps, or ends."""
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while count > 0:
            data = self._read(deadline, f"{count} more steps")
            if not data:
                return
            count -= data.count(b"\n")

    def next_line(self, what: str, timeout_s: float = EVENT_TIMEOUT_S) -> str:
        """Return the next line of the program's report, which `what` describes."""
        deadline = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            data = self._read(deadline, what)
            if not data:
                self.fail(f"ended before {what}")
            line += data
        return line.decode().rstrip("\n")

    def _read(self, deadline: float, what: str) -> bytes:
        ready, _, _ = select.select([self.progress], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            self.fail(f"hangs: the test waits for {what}")
        return os.read(self.progress, 4096)

    def report(self) -> str:
        """Return the rest of what the program reports, up to its end."""
        parts = []
        deadline = time.monotonic() + EVENT_TIMEOUT_S
        while data := self._read(deadline, "the end of its report"):
            parts.append(data)
        return b"".join(parts).decode()

    def ask(self) -> None:
        """Send the program a request, which it answers in its report."""
        self.tell("?")

    def tell(self, text: str) -> None:
        """Write to the program's standard input."""
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), text.encode())

    def let_end(self) -> None:
        """Tell the program to come to an end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, timeout_s: float = EVENT_TIMEOUT_S) -> int:
        """Wait until the program has ended; return its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.fail("does not end")

    def output(self) -> str:
        """Return what the program has printed."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def fail(self, what: str) -> NoReturn:
        """Fail the test, and show the stacks of all processes."""
        pids = self.processes()
        states = "\n".join(f"  {describe(pid)}" for pid in pids)
        stacks = "\n".join(map(stack_of, pids))
        raise AssertionError(f"{self.name} {what}\n{states}\n{stacks}\n{self.output()[-6000:]}")

    # ------------------------------------------------------------ its processes

    def processes(self) -> list[int]:
        """Return the pids of the driver and all its descendants that are not dead."""
        needle = f"{TAG}={self.tag}".encode()
        return [pid for pid in all_pids() if needle in _environ(pid)]

    def tree(self) -> dict[str, list[int]]:
        """Return the living processes by role: driver, node, template, worker, other."""
        roles: dict[str, list[int]] = {"driver": [], "node": [], "template": [], "worker": [], "other": []}
        parents = {pid: parent_of(pid) for pid in self.processes()}
        role_of: dict[int, str] = {}

        def role(pid: int) -> str:
            if pid in role_of:
                return role_of[pid]
            above = parents.get(pid)
            if pid == self.pid:
                found = "driver"
            elif above == self.pid and "node_boot" in command_of(pid):
                found = "node"
            elif above in parents and role(above) == "node":
                found = "template"
            elif above in parents and role(above) == "template":
                found = "worker"
            else:
                found = "other"
            role_of[pid] = found
            return found

        for pid in parents:
            roles[role(pid)].append(pid)
        return roles

    def kill(self, pids: Iterable[int]) -> None:
        """Kill processes of this driver, all at once as far as that is possible."""
        pids = list(pids)
        mine = set(self.processes())
        for pid in pids:
            if pid in mine:
                try:
                    attacks.kill(pid)
                except ProcessLookupError:  # it has ended since, because of the others
                    continue

    def stop_and_kill(self, pids: Iterable[int]) -> None:
        """Kill processes that shall not see each other die."""
        pids = list(pids)
        attacks.record(len(pids))
        self._stop_and_kill(pids)

    @staticmethod
    def _stop_and_kill(pids: list[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                continue
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def wait_all_gone(self, timeout_s: float = EVENT_TIMEOUT_S) -> None:
        """Wait until no process of this driver is left."""
        deadline = time.monotonic() + timeout_s
        if self.pid in self.processes():
            self.wait(timeout_s)
        while pids := self.processes():
            for pid in pids:
                if not wait_for_end(pid, max(0.0, deadline - time.monotonic())):
                    self.fail(f"process {describe(pid)} is left")
        self.process.wait(timeout_s)

    def assert_nothing_left(self, *, folders: bool = True) -> None:
        """Wait until every process has ended, and check that no file of the session remains."""
        self.wait_all_gone()
        if folders:
            left = self.arena.sessions()
            # The last process removes the folders before it ends, so there is nothing to wait for.
            names = [str(path) for path in left]
            assert not left, f"{self.name} left {names}\n{self.output()[-3000:]}"

    def close(self) -> None:
        """Let go of everything; kill what still runs."""
        while pids := self.processes():
            self._stop_and_kill(pids)
            for pid in pids:
                if pid != self.pid:
                    wait_for_end(pid, 5)
            self.process.wait(5)
        self.process.wait(5)
        os.close(self.progress)
        self.errors.close()
        if self.process.stdin is not None:
            self.process.stdin.close()


def all_pids() -> list[int]:
    """Return the pids of all processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return b""


def command_of(pid: int) -> str:
    """Return the command line of a process, "" if there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def parent_of(pid: int) -> int:
    """Return the parent of a process, 0 if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def describe(pid: int) -> str:
    """Return a line about a process."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return f"{pid} (gone)"
    return f"{pid} [{state}, parent {parent_of(pid)}, in {where or '?'}] {command_of(pid)[:120]}"


def users_of(folder: Path) -> list[int]:
    """Return the processes that have files of a folder open."""
    found = []
    for pid in all_pids():
        try:
            targets = [os.readlink(entry) for entry in os.scandir(f"/proc/{pid}/fd")]
        except OSError:  # gone, or another user's
            continue
        if any(Path(target).is_relative_to(folder) for target in targets):
            found.append(pid)
    return found


def stack_of(pid: int) -> str:
    """Return the Python stacks of a process."""
    spy = shutil.which("py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if spy is None:
        return f"{pid}: install py-spy to see its stacks"
    done = subprocess.run([spy, "dump", "--pid", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout or f"{pid}: {done.stderr.strip()}"


def wait_for_end(pid: int, timeout: float) -> bool:
    """Wait until a process, not necessarily a child, has ended; False after the timeout."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout * 1000))
    finally:
        os.close(descriptor)


def eventually(
    condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = EVENT_TIMEOUT_S
) -> None:
    """Ask until `condition()` is true; for facts that nothing announces."""
    deadline = time.monotonic() + timeout_s
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            words = what if isinstance(what, str) else what()
            raise AssertionError(f"still not so after {timeout_s:g} s: {words}")
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
