"""`skate run`: what `python` would do, with `import ray` meaning Skate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from skate._engine.registry import ENGINES
from skate._version import ray_version
from skate.cli import run as command
from tests.plugins.command_line import PROGRAM_TIMEOUT_S, Done

RUN = ("-m", "skate.cli", "run")

FACTS = """
import json, os, sys
import ray

main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv,
    "path": sys.path[0],
    "name": __name__,
    "file": __file__,
    "package": __package__,
    "spec": __spec__ and __spec__.name,
    "is_main": vars(main) is globals(),
    "engine": os.environ.get("SKATE_ENGINE"),
    "address": os.environ.get("SKATE_ADDRESS"),
}))
"""


def python(
    *arguments: str, folder: Path, status: int = 0, text: str | None = None, **environment: str
) -> Done:
    """Run the interpreter in a folder."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        cwd=folder,
        text=True,
        check=False,
        timeout=PROGRAM_TIMEOUT_S,
        input=text,
        env={**os.environ, **environment},
    )
    return Done(done.stdout, done.stderr, done.returncode).checked(arguments, status)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one program in the forms in which `python` takes it; its `ray` is a stand-in."""
    write(tmp_path / "programs" / "script.py", FACTS)
    write(tmp_path / "package" / "__init__.py", "")
    write(tmp_path / "package" / "__main__.py", FACTS)
    write(tmp_path / "package" / "part.py", FACTS)
    write(tmp_path / "container" / "__main__.py", FACTS)
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", FACTS)
    write(tmp_path / "site" / "ray.py", "")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["programs/script.py"],
        ["programs/script.py", "--engine", "mine", "-m", "--", "-h"],
        ["-m", "package", "-x"],
        ["-m", "package.part", "--", "x"],
        ["container", "x"],
        ["archive.zip"],
    ],
    ids=" ".join,
)
def test_a_program_sees_what_it_sees_under_python(folder: Path, arguments: list[str]) -> None:
    plain = python(*arguments, folder=folder, PYTHONPATH=str(folder / "site"))
    ours = python(*RUN, *arguments, folder=folder)
    assert json.loads(ours.out) == json.loads(plain.out)
    assert json.loads(ours.out)["is_main"]


def test_a_safe_path_stays_safe(folder: Path) -> None:
    plain = python("-P", "programs/script.py", folder=folder, PYTHONPATH=str(folder / "site"))
    ours = python("-P", *RUN, "programs/script.py", folder=folder, PYTHONPATH=str(folder / "site"))
    assert json.loads(ours.out) == json.loads(plain.out)


def test_options_before_the_script_choose_engine_and_address(folder: Path) -> None:
    options = ["--engine", "inline", "--address", "auto"]
    facts = json.loads(python(*RUN, *options, "programs/script.py", "--engine", "x", folder=folder).out)
    assert (facts["engine"], facts["address"]) == ("inline", "auto")
    assert facts["argv"][1:] == ["--engine", "x"]


def test_every_engine_can_be_chosen() -> None:
    assert command.ENGINES == ENGINES


PROGRAM = """
import inspect, pickle, sys
from dataclasses import dataclass

import ray
from ray.util import ActorPool

@dataclass
class Point:
    x: int

class Base:
    def scale(self, point):
        return Point(point.x * FACTOR)

FACTOR = 10

@ray.remote
class Scaler(Base):
    def make(self, x):
        return self.scale(Point(x))

@ray.remote
def add(a, b):
    assert ray.__version__
    return Point(a.x + b.x)

if __name__ == "__main__":
    scaler = Scaler.remote()
    total = ray.get(add.remote(scaler.make.remote(1), scaler.make.remote(2)))
    assert type(total) is Point
    assert pickle.loads(pickle.dumps(total)) == total
    assert "FACTOR" in inspect.getsource(Base.scale)
    assert list(ActorPool([scaler]).map(lambda a, x: a.make.remote(x), [3])) == [Point(30)]
    print(total, ray.__version__)
"""


@pytest.mark.parametrize("engine", ["inline", "local"])
@pytest.mark.parametrize("arguments", [["program.py"], ["-m", "program"]], ids=" ".join)
def test_what_the_script_defines_works_in_tasks_and_actors(
    tmp_path: Path, engine: str, arguments: list[str]
) -> None:
    write(tmp_path / "program.py", PROGRAM)
    done = python(*RUN, "--engine", engine, *arguments, folder=tmp_path)
    assert done.out == f"Point(x=30) {ray_version}\n"


@pytest.mark.parametrize(
    "ending",
    [
        "raise ConnectionError('no line of click')",
        "def broken(: pass",
        "raise SystemExit('bye')",
        "raise SystemExit(7)",
        "import os; os._exit(9)",
        "import atexit; atexit.register(print, 'at the end')",
        "import missing_module_of_mine",
        "try:\n    1 / 0\nfinally:\n    {}['key']",
    ],
)
def test_a_program_ends_as_under_python(tmp_path: Path, ending: str) -> None:
    write(tmp_path / "script.py", f"# a line\n{ending}\n")
    plain = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    ours = python(*RUN, "script.py", folder=tmp_path, status=plain.returncode)
    assert ours.err == plain.stderr
    assert ours.out == plain.stdout


def test_ctrl_c_ends_a_program_as_under_python(tmp_path: Path) -> None:
    write(tmp_path / "script.py", "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = python(*RUN, "script.py", folder=tmp_path, status=-signal.SIGINT)
    assert done.err.startswith("Traceback (most recent call last):\n  File")
    assert done.err.endswith("KeyboardInterrupt\n")
    assert "click" not in done.err


def test_an_excepthook_of_the_program_is_used(tmp_path: Path) -> None:
    write(tmp_path / "script.py", "import sys\nsys.excepthook = lambda *_: print('mine')\nraise ValueError\n")
    done = python(*RUN, "script.py", folder=tmp_path, status=1)
    assert (done.out, done.err) == ("mine\n", "")


def test_a_breakpoint_stops_in_the_script(tmp_path: Path) -> None:
    script = """
        import ray

        @ray.remote
        def half(number):
            breakpoint()
            return number / 2

        print(ray.get(half.remote(6)))
        """
    write(tmp_path / "script.py", script)
    done = python(*RUN, "--engine", "inline", "script.py", folder=tmp_path, text="p number * 7\ncontinue\n")
    assert "(Pdb) 42\n" in done.out
    assert done.out.endswith("3.0\n")


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["nothing.py"], 2, "Error: The file 'nothing.py' does not exist.\n"),
        (["-m", "nothing.at_all"], 1, "skate run: the module 'nothing.at_all' does not exist.\n"),
        (["-m", "empty"], 1, "skate run: the module 'empty.__main__' does not exist.\n"),
        (["empty"], 1, "skate run: 'empty' contains no __main__.py.\n"),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], status: int, words: str
) -> None:
    write(tmp_path / "empty" / "__init__.py", "")
    done = python(*RUN, *arguments, folder=tmp_path, status=status)
    assert (done.out, done.err) == ("", words)


@pytest.mark.parametrize("arguments", [[], ["--engin", "x", "script.py"], ["--engine", "cloud", "script.py"]])
def test_a_wrong_command_line_is_not_run(tmp_path: Path, arguments: list[str]) -> None:
    write(tmp_path / "script.py", "print('ran')")
    done = python(*RUN, *arguments, folder=tmp_path, status=2)
    assert "Usage: " in done.err
    assert done.out == ""


def test_a_package_that_fails_to_import_shows_where(tmp_path: Path) -> None:
    write(tmp_path / "package" / "__init__.py", "import missing_module_of_mine")
    write(tmp_path / "package" / "part.py", "")
    done = python(*RUN, "-m", "package.part", folder=tmp_path, status=1)
    assert "No module named 'missing_module_of_mine'" in done.err
    assert "package/__init__.py" in done.err
