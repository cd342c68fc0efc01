"""A node that several drivers share: each driver is a process of its own, as in life."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import skate
from skate._engine.local.driver import long_lived
from skate._engine.local.session import folders as session
from skate._engine.local.session import node_records
from skate.util import state
from tests.contract.support import EVENT_TIMEOUT_S, eventually

PRELUDE = """
import json, os, sys, time
import skate

def say(*values):
    print(json.dumps(values), flush=True)
"""

COUNTER = """
@skate.remote
class Counter:
    def __init__(self):
        self.count = 0
    def add(self):
        self.count += 1
        return self.count
    def pid(self):
        return os.getpid()
"""


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sessions of the test's own; every node in it is gone in the end."""
    folder = Path(tempfile.mkdtemp(prefix="skl-"))
    monkeypatch.setenv("SKATE_TMPDIR", str(folder))
    yield folder / f"skate-{os.getuid()}"
    skate.shutdown()
    long_lived.stop(private=True)
    shutil.rmtree(folder)


@pytest.fixture
def node(root: Path) -> node_records.NodeRecord:
    return long_lived.start(num_cpus=2)


class Driver:
    """A driver in a process of its own, which says things on its standard output, a JSON list to a line."""

    def __init__(self, program: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "SKATE_LOG_TO_DRIVER": "0", **environment},
        )

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the driver ended: {self.process.communicate()[1]}")
        return json.loads(line)

    def finish(self) -> tuple[str, str]:
        out, err = self.process.communicate(timeout=EVENT_TIMEOUT_S)
        assert self.process.returncode == 0, err
        return out, err

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()


def run(program: str, **environment: str) -> list[Any]:
    """Run a driver to its end and return what it said."""
    with Driver(program, **environment) as driver:
        out, _ = driver.finish()
    return [json.loads(line) for line in out.splitlines()]


def family(node: node_records.NodeRecord) -> list[psutil.Process]:
    process = psutil.Process(node.pid)
    return [process, *process.children(recursive=True)]


def gone(processes: list[psutil.Process]) -> bool:
    return not [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


# ------------------------------------------------------------ starting and finding


def test_a_node_is_nobodys_child_and_has_no_terminal(node: node_records.NodeRecord) -> None:
    process = psutil.Process(node.pid)
    assert process not in psutil.Process().children()
    assert process.terminal() is None
    assert os.getsid(node.pid) == node.pid != os.getsid(0)


def test_its_address_is_kept_in_a_file_that_only_the_user_can_read(
    root: Path, node: node_records.NodeRecord
) -> None:
    file = root / "current"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert file.read_text().strip() == node.folder == long_lived.find("auto") == long_lived.find(node.folder)
    assert node_records.current() == node
    assert node_records.nodes() == [node]


def test_a_second_one_is_refused(node: node_records.NodeRecord) -> None:
    with pytest.raises(RuntimeError, match="skate stop"):
        long_lived.start()
    assert node_records.nodes() == [node]


def test_of_many_starts_at_once_one_wins(root: Path) -> None:
    results: list[object] = []

    def start() -> None:
        try:
            results.append(long_lived.start(num_cpus=1))
        except RuntimeError as error:
            results.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(result, node_records.NodeRecord) for result in results) == 1
    assert len(node_records.nodes()) == 1


def test_a_node_that_cannot_start_says_why_and_leaves_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        long_lived, "node_config", lambda **_: {"resources": {"CPU": "many"}, "devices": {}, "preload": []}
    )
    with pytest.raises(RuntimeError, match=r"did not start\. It printed:[\s\S]*Error"):
        long_lived.start()
    assert [path for path in root.iterdir() if path.name.startswith("session-")] == []
    assert node_records.current() is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("auto", "No Skate node is running.*skate start"),
        ("/nowhere", "No Skate node runs in /nowhere.*skate start"),
        ("localhost", "on this machine"),
    ],
)
def test_an_address_without_a_node_is_explained(root: Path, address: str, words: str) -> None:
    with pytest.raises(ConnectionError, match=words):
        skate.init(address=address)
    assert not skate.is_initialized()


def test_another_python_is_refused(node: node_records.NodeRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "python_version", lambda: "3.99.1")
    with pytest.raises(ConnectionError, match=r"Python 3\.99"):
        long_lived.find("auto")


# ------------------------------------------------------------ several drivers


def test_a_detached_actor_outlives_the_driver_that_made_it(node: node_records.NodeRecord) -> None:
    program = f"""
skate.init(address="auto", namespace="n")
{COUNTER}
counter = Counter.options(name="c", lifetime="detached", get_if_exists=True).remote()
plain = Counter.options(name="plain").remote()
say(skate.get([counter.add.remote(), counter.pid.remote(), plain.add.remote()]))
"""
    ((first,),) = run(program)
    ((second,),) = run(program)
    assert (first[0], second[0]) == (1, 2)
    assert first[1] == second[1]
    assert (first[2], second[2]) == (1, 1)  # an actor that is not detached ends with its driver
    skate.init(address="auto", namespace="n")
    counter = skate.get_actor("c")
    assert skate.get(counter.add.remote()) == 3
    with pytest.raises(ValueError, match="plain"):
        skate.get_actor("plain")
    skate.kill(counter)


@pytest.mark.parametrize("variable", ["SKATE_ADDRESS", "RAY_ADDRESS"])
def test_the_address_can_come_from_outside(node: node_records.NodeRecord, variable: str) -> None:
    said = run("say(skate.init()['session_dir'])", **{variable: "auto"})
    assert said == [[node.folder]]


def test_local_starts_a_private_node_whatever_the_environment_says(node: node_records.NodeRecord) -> None:
    ((folder,),) = run("say(skate.init('local')['session_dir'])", SKATE_ADDRESS="auto")
    assert folder != node.folder


def test_drivers_share_the_resources(node: node_records.NodeRecord) -> None:
    skate.init(address="auto")
    program = """
skate.init(address="auto")
@skate.remote(num_cpus=2)
class Greedy:
    def ping(self): return 1
greedy = Greedy.remote()
say(skate.get(greedy.ping.remote()))
sys.stdin.readline()
"""
    with Driver(program) as other:
        assert other.hear() == [1]
        assert skate.available_resources().get("CPU", 0) == 0
        waiting = skate.remote(lambda: "at last").remote()
        assert "holds {'CPU': 2.0} for Greedy" in state.why(waiting)
        assert skate.wait([waiting], timeout=0) == ([], [waiting])
        other.process.communicate("\n", timeout=EVENT_TIMEOUT_S)
        assert skate.get(waiting, timeout=EVENT_TIMEOUT_S) == "at last"


def test_workers_look_like_their_own_driver(node: node_records.NodeRecord, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def value(): return 'from the driver'")
    program = f"""
os.chdir({str(tmp_path)!r}); sys.path.insert(0, {str(tmp_path)!r})
skate.init(address="auto")
@skate.remote
def look():
    import helper
    return helper.value(), os.getcwd(), os.environ.get("WHO"), os.environ.get("NODE_ONLY")
say(*skate.get(look.remote()))
"""
    assert run(program, WHO="me") == [["from the driver", str(tmp_path), "me", None]]
    assert run(program, WHO="you") == [["from the driver", str(tmp_path), "you", None]]


def test_what_workers_start_is_known_to_belong_to_the_session(node: node_records.NodeRecord) -> None:
    program = """
skate.init(address="auto")
@skate.remote
def look():
    import subprocess
    return subprocess.check_output(["printenv", "SKATE_SESSION"], text=True).strip()
say(skate.get(look.remote()))
"""
    assert run(program, SKATE_SESSION="/another") == [[node.folder]]


def test_a_driver_hears_only_its_own_workers_and_all_they_said(node: node_records.NodeRecord) -> None:
    program = """
skate.init(address="auto")
@skate.remote
def speak(text): print(text)
skate.get([speak.remote(f"{sys.argv[0]} {os.environ['WHO']} {i}") for i in range(20)])
"""
    drivers = [Driver(program, WHO=who, SKATE_LOG_TO_DRIVER="1", RAY_DEDUP_LOGS="0") for who in ("a", "b")]
    for driver, own, other in zip(drivers, "ab", "ba", strict=True):
        with driver:
            out, _ = driver.finish()
        assert sum(f" {own} " in line for line in out.splitlines()) == 20
        assert f" {other} " not in out


def test_a_reference_of_one_driver_means_nothing_to_another(node: node_records.NodeRecord) -> None:
    ((text,),) = run("skate.init(address='auto')\nsay(skate.put(1).hex())")
    skate.init(address="auto")
    assert "not known" in state.why(text)


# ------------------------------------------------------------ looking without being seen


def test_looking_at_a_node_leaves_no_trace(node: node_records.NodeRecord) -> None:
    assert state.list_jobs() == state.list_workers() == state.list_tasks() == []
    assert not skate.is_initialized()
    run("skate.init(address='auto')")
    assert [job.status for job in state.list_jobs()] == ["SUCCEEDED"]


def test_a_running_programs_private_node_can_be_looked_at(root: Path) -> None:
    program = """
skate.init(num_cpus=1)
@skate.remote
def work(): return 1
skate.get(work.options(name="mine").remote())
say("ready")
sys.stdin.readline()
say(skate.get(work.remote()))
"""
    with Driver(program) as driver:
        assert driver.hear() == ["ready"]
        assert [task.name for task in state.list_tasks()] == ["mine"]
        with pytest.raises(ConnectionError, match="skate start"):
            skate.init(address="auto")  # it would end with the other program
        with Driver(program) as second:
            assert second.hear() == ["ready"]
            with pytest.raises(ConnectionError, match="2 nodes of programs are running"):
                state.list_tasks()
            folder = node_records.nodes()[0].folder
            assert [task.name for task in state.list_tasks(address=folder)] == ["mine"]
        out, _ = driver.process.communicate("\n", timeout=EVENT_TIMEOUT_S)  # looking has not ended it
        assert json.loads(out) == [1]


def test_a_program_that_a_program_starts_finds_its_private_node(root: Path) -> None:
    skate.init(num_cpus=3, namespace="here")
    asks = 'skate.init("auto", namespace="here"); say(skate.cluster_resources()["CPU"])'
    assert run(asks) == [[3.0]]
    # And one further down.
    assert run(
        f"import subprocess; subprocess.run([sys.executable, '-c', {PRELUDE + asks!r}], check=True)"
    ) == [[3.0]]
    assert skate.get(skate.remote(lambda: 8).remote()) == 8


def test_a_second_driver_does_not_end_a_private_node(root: Path) -> None:
    folder = skate.init(num_cpus=1)["session_dir"]
    assert run(f"skate.init(address={folder!r})\nsay(skate.get(skate.put(7)))") == [[7]]
    assert skate.get(skate.remote(lambda: 8).remote()) == 8


# ------------------------------------------------------------ deaths


def test_the_node_survives_the_kill_of_a_driver(node: node_records.NodeRecord) -> None:
    program = f"""
skate.init(address="auto", namespace="n")
{COUNTER}
kept = Counter.options(name="kept", lifetime="detached").remote()
lost = Counter.remote()
@skate.remote
def forever(): time.sleep(1000)
tasks = [forever.options(num_cpus=1).remote() for _ in range(2)]
big = skate.put(b"x" * 5_000_000)
say(skate.get([kept.pid.remote(), lost.pid.remote()]))
time.sleep(1000)
"""
    with Driver(program) as driver:
        ((kept, lost),) = driver.hear()
        driver.process.send_signal(signal.SIGKILL)
        driver.process.wait()
        eventually(lambda: not psutil.pid_exists(lost), "the actor of a dead driver ends")
    skate.init(address="auto", namespace="n")
    assert skate.get(skate.get_actor("kept").pid.remote()) == kept
    eventually(lambda: skate.available_resources().get("CPU") == 2, "its CPUs come back")
    eventually(lambda: not state.list_objects(), "its objects are freed")
    assert skate.get(skate.remote(lambda: 1).remote()) == 1


def test_drivers_learn_at_once_that_their_node_was_killed(node: node_records.NodeRecord) -> None:
    program = f"""
skate.init(address="auto")
{COUNTER}
@skate.remote
def forever(): time.sleep(1000)
actor = Counter.remote()
say(skate.get(actor.add.remote()))
try:
    skate.get(forever.remote())
except skate.exceptions.RayError as error:
    say(type(error).__name__)
try:
    skate.get(actor.add.remote())
except skate.exceptions.RayError as error:
    say(type(error).__name__)
"""
    with Driver(program) as driver:
        assert driver.hear() == [1]
        everyone = eventually(lambda: (found := family(node)) and len(found) >= 4 and found)
        os.kill(node.pid, signal.SIGKILL)
        out, _ = driver.finish()
    assert len(out.splitlines()) == 2, out
    eventually(lambda: gone(everyone), "workers die with their node")
    assert node_records.current() is None
    with pytest.raises(ConnectionError, match="skate start"):
        skate.init(address="auto")


def test_a_new_node_takes_the_place_of_a_killed_one(root: Path, node: node_records.NodeRecord) -> None:
    everyone = family(node)
    os.kill(node.pid, signal.SIGKILL)
    eventually(lambda: gone(everyone))
    new = long_lived.start(num_cpus=1)
    assert long_lived.find("auto") == new.folder != node.folder
    eventually(lambda: not Path(node.folder).exists(), "the folder of the dead node is swept")
    assert run("skate.init(address='auto')\nsay(skate.get(skate.put(7)))") == [[7]]


def test_a_hang_up_and_an_interrupt_do_not_end_the_node(node: node_records.NodeRecord) -> None:
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(node.pid, number)
    assert run("skate.init(address='auto')\nsay(skate.get(skate.put(7)))") == [[7]]


# ------------------------------------------------------------ stopping


@pytest.mark.parametrize("force", [False, True])
def test_stopping_leaves_nothing(root: Path, node: node_records.NodeRecord, force: bool) -> None:
    program = f"""
skate.init(address="auto")
{COUNTER}
actor = Counter.options(lifetime="detached", name="a").remote()
@skate.remote
def spawn():
    import subprocess
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
big = skate.put(b"x" * 5_000_000)
say(skate.get([actor.pid.remote(), spawn.remote()]))
try:
    skate.get(actor.add.options(name="x").remote())
    time.sleep(1000)
except BaseException as error:
    say(type(error).__name__)
"""
    with Driver(program) as driver:
        driver.hear()
        everyone = family(node)
        assert long_lived.stop(force=force) == [node]
        assert gone(everyone)
    assert [path.name for path in root.iterdir() if path.name != "start.lock"] == []
    assert not (Path(session.shm_root()) / Path(node.folder).name).exists()
    assert long_lived.stop() == []


def test_a_node_that_does_not_end_is_killed_after_a_while(node: node_records.NodeRecord) -> None:
    everyone = family(node)
    os.kill(node.pid, signal.SIGSTOP)
    assert long_lived.stop(grace=0.1) == [node]
    assert gone(everyone)
    assert not os.path.exists(node.folder)


def test_stopping_leaves_private_nodes_alone_unless_told(root: Path, node: node_records.NodeRecord) -> None:
    program = """
skate.init(num_cpus=1)
say("ready")
sys.stdin.readline()
say(skate.get(skate.remote(lambda: 7).remote()))
"""
    with Driver(program) as driver:
        assert driver.hear() == ["ready"]
        assert [record.private for record in node_records.nodes()] == [False, True]
        assert long_lived.stop() == [node]
        out, _ = driver.process.communicate("\n", timeout=EVENT_TIMEOUT_S)
        assert json.loads(out) == [7]
    with Driver(program) as driver:
        assert driver.hear() == ["ready"]
        (record,) = long_lived.stop(private=True)
        assert record.private
        driver.process.communicate("\n", timeout=EVENT_TIMEOUT_S)
        assert driver.process.returncode != 0


# ------------------------------------------------------------ sweeping


def test_sweeping_spares_sessions_of_other_roots(root: Path, tmp_path: Path) -> None:
    skate.init(num_cpus=1)
    big = skate.put(b"x" * 5_000_000)
    elsewhere = tempfile.mkdtemp(prefix="skl-")
    program = "from skate._engine.local.session import folders; folders.sweep()"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "SKATE_TMPDIR": elsewhere}, check=True)
    shutil.rmtree(elsewhere)
    assert skate.get(skate.remote(lambda data: len(data)).remote(big)) == 5_000_000
