"""Ray programs run unchanged on Skate: in the driver, in its workers, in pytest, and beside an installed Ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import skate
from skate._version import ray_version

EXAMPLES = Path(__file__).parents[1] / "examples"
ENGINES = ("inline", "local")

# A package that calls itself ray: it looks itself up lazily, as the real one does, and so does its pickle.
INSTALLED_RAY = {
    "ray/__init__.py": """
        __version__ = "real"

        def lazily():
            import ray.late
            return ray.late.where(), ray.__version__

        def by_name(name):
            import importlib
            return importlib.import_module(name).__file__
        """,
    "ray/late.py": """
        from ray import exceptions

        def where():
            return __file__

        def fail():
            raise exceptions.GetTimeoutError("too late")
        """,
    "ray/exceptions.py": """
        class GetTimeoutError(Exception): ...
        """,
    "ray/worker_program.py": """
        def lazily():
            import ray
            return ray.__version__
        """,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def installed_ray(folder: Path) -> Path:
    """A folder in which a package `ray` is installed."""
    return write(folder / "site", INSTALLED_RAY)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


def run(
    command: list[str], folder: Path, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == status, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done


def python(text: str, folder: Path, **environment: str) -> str:
    """Run a program from a file, and return what it printed."""
    (folder / "program.py").write_text(dedent(text))
    return run(["program.py"], folder, **environment).stdout


IN_WORKERS = """
import skate.as_ray
import ray
import ray.util.queue as queues
import shared

@ray.remote
def inside():
    import ray
    from ray.util.placement_group import PlacementGroup
    import skate
    return [
        ray.__version__,
        ray.ObjectRef is skate.ObjectRef,
        PlacementGroup is skate.util.placement_group.PlacementGroup,
        queues is skate.util.queue,
        type(ray.put(1)) is ray.ObjectRef,
        ray.get(nested.remote()),
    ]

@ray.remote
def nested():
    return shared.version()

@ray.remote
class Counter:
    def __init__(self):
        import ray
        self.where = ray.get_runtime_context().get_actor_id()

    def is_somewhere(self):
        return bool(self.where) and shared.version()

print(ray.get(inside.remote()))
print(ray.get(Counter.remote().is_somewhere.remote()))
print(ray.get(shared.imported_there.remote()))
"""

SHARED = """
import ray
from ray.exceptions import RayTaskError

def version():
    return ray.__version__, RayTaskError.__module__

@ray.remote
def imported_there():
    return version()
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("has_ray", [False, True], ids=["without Ray", "beside an installed Ray"])
def test_ray_is_skate_in_the_driver_and_in_workers(
    folder: Path, installed_ray: Path, engine: str, has_ray: bool
) -> None:
    (folder / "shared.py").write_text(SHARED)
    path = {"PYTHONPATH": str(installed_ray)} if has_ray else {}
    printed = python(IN_WORKERS, folder, SKATE_ENGINE=engine, **path)
    shared = (ray_version, "skate.exceptions")
    assert printed.splitlines() == [
        str([ray_version, True, True, True, True, shared]),
        str(shared),
        str(shared),
    ]


def test_a_worker_with_an_environment_of_its_own_has_the_alias_too(folder: Path) -> None:
    printed = python(
        """
        import skate.as_ray
        import ray

        def version():
            import ray
            return ray.__version__

        for env in ({"env_vars": {"COLOUR": "red"}}, {"env_vars": {"PYTHONHASHSEED": "0"}}):
            print(ray.get(ray.remote(version).options(runtime_env=env).remote()))
        """,
        folder,
    )
    assert printed.split() == [ray_version, ray_version]


def test_what_a_worker_preloads_may_import_ray(folder: Path) -> None:
    (folder / "shared.py").write_text(SHARED)
    printed = python(
        """
        import sys
        import skate.as_ray
        import ray

        def was_preloaded():
            return "shared" in sys.modules and repr(sys.modules["shared"].ray).split()[:3]

        with skate.init(preload=["shared"], num_cpus=1):
            print(ray.get(ray.remote(was_preloaded).remote()))
        """,
        folder,
        PYTHONPATH=str(folder),
    )
    assert printed.strip() == str(["<module", "'ray'", "(Skate)"])


def test_a_job_without_the_alias_gets_the_installed_ray_on_the_same_node(
    folder: Path, installed_ray: Path
) -> None:
    looking = """
        import sys
        import skate

        if "on" in sys.argv[1]:
            import skate.as_ray

        def version():
            import ray
            return ray.__version__

        skate.init(address=sys.argv[2])
        print(version(), skate.get(skate.remote(version).remote()))
        """
    write(folder, {"looking.py": looking})
    with skate.init(engine="local", num_cpus=2) as session:
        for alias, version in (("on", ray_version), ("off", "real"), ("on", ray_version)):
            command = ["looking.py", alias, session["session_dir"]]
            done = run(command, folder, PYTHONPATH=str(installed_ray))
            assert done.stdout.split() == [version, version]


def test_a_node_whose_driver_has_the_alias_gives_it_to_no_other_job(
    folder: Path, installed_ray: Path
) -> None:
    other = """
        import sys
        import skate

        def version():
            import ray
            return ray.__version__

        skate.init(address=sys.argv[1])
        print(skate.get(skate.remote(version).remote()))
        """
    write(folder, {"other.py": other})
    printed = python(
        """
        import subprocess, sys
        import skate.as_ray
        with skate.init(num_cpus=2) as session:
            subprocess.run([sys.executable, "other.py", session["session_dir"]], check=True)
        """,
        folder,
        PYTHONPATH=str(installed_ray),
    )
    assert printed.strip() == "real"


def test_an_error_inside_a_module_of_skate_is_not_called_a_missing_module(folder: Path) -> None:
    printed = python(
        """
        import sys
        import skate.as_ray
        sys.modules["joblib"] = None  # as if it were not installed
        for name in ("ray.util.joblib.ray_backend", "ray.util.joblib.nothing"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error.name)
        """,
        folder,
    )
    assert printed.split() == ["joblib.parallel", "ray.util.joblib.nothing"]


def test_pytest_takes_it_as_a_plugin_and_says_so(folder: Path) -> None:
    (folder / "test_sums.py").write_text(
        dedent(
            """
            import ray

            def test_a_sum():
                with ray.init(num_cpus=1):
                    assert ray.get(ray.remote(sum).remote([1, 2])) == 3

            def test_a_patched_name(monkeypatch):
                monkeypatch.setattr("ray.get", lambda ref: "patched")
                assert ray.get(None) == "patched"
            """
        )
    )
    others = ["-p", "no:asyncio", "-p", "no:cacheprovider"]  # the first warns of a setting that is not there
    done = run(["-m", "pytest", "-Werror", "-p", "skate.as_ray", *others], folder)
    assert f"ray: Skate {skate.__version__}, with the API of Ray {ray_version}" in done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    ("example", "proof"),
    [("01_tasks.py", "^primes: 2 3 5 7"), ("02_actors.py", "^page-3: "), ("03_objects.py", "^2000 of 2000")],
)
def test_an_example_written_for_ray_runs_unchanged(folder: Path, example: str, proof: str) -> None:
    text = (EXAMPLES / example).read_text(encoding="utf-8")
    (folder / example).write_text(re.sub(r"\bskate\b", "ray", text), encoding="utf-8")
    done = run(["-m", "skate.cli", "run", example], folder)
    assert re.search(proof, done.stdout, flags=re.MULTILINE), done.stdout


# ------------------------------------------------------------ both in one process

BOTH = """
import importlib, pickle, sys
import skate
from skate._base.alias import real_ray

{first}

import ray
assert ray.__version__ == "{version}"
real = real_ray()
late = real_ray("ray.late")
assert real.__version__ == "real"
assert sys.modules["ray"] is real
assert sys.modules["ray.late"] is late
assert late.__file__ == real.by_name("ray.late") == real.lazily()[0]
assert real.lazily()[1] == "real"

import ray as again, ray.util.queue, ray.actor as actor
from ray.util.queue import Queue
from ray.exceptions import GetTimeoutError
from ray import exceptions, util
assert again is ray
assert actor is skate.actor
assert Queue is skate.util.queue.Queue
assert GetTimeoutError is skate.exceptions.GetTimeoutError
assert exceptions is importlib.import_module("ray.exceptions") is skate.exceptions
assert importlib.import_module("ray") is ray
assert importlib.import_module(".exceptions", "ray") is exceptions

# An error of Ray's travels through a pickle, which names modules, and one of ours does too.
try:
    late.fail()
except Exception as error:
    theirs = pickle.loads(pickle.dumps(error))
assert type(theirs) is real_ray("ray.exceptions").GetTimeoutError is not GetTimeoutError
assert type(pickle.loads(pickle.dumps(GetTimeoutError("mine")))) is GetTimeoutError
assert pickle.loads(b"cray.worker_program\\nlazily\\n.")() == "real"  # imported only now
assert pickle.loads(pickle.dumps(ray)) is ray
assert pickle.loads(pickle.dumps(importlib.import_module)) is importlib.import_module

# A program that Ray starts is called `__main__`, and still Ray's own.
program = {{"__name__": "__main__", "__file__": real.__file__.replace("__init__", "worker_program")}}
exec(open(program["__file__"]).read(), program)
assert program["lazily"]() == "real"

# What Ray alone has is Ray's.
import ray.late
from ray import late as same
assert same is ray.late is importlib.import_module("ray.late") is late

for statement, words in {{
    "import ray.nowhere": "No module named 'ray.nowhere'",
    "from ray import nowhere": "cannot import name 'nowhere' from 'ray'",
    "from ray.util import quee": "Did you mean ray.util.queue?",
}}.items():
    try:
        exec(statement)
    except ImportError as error:
        assert words in str(error), error
    else:
        raise AssertionError(statement)

import skate.as_ray
skate.as_ray.uninstall()
import ray
assert ray is real is importlib.import_module("ray")
assert not hasattr(__import__, "__wrapped__")
assert real_ray("ray.late") is late
print("done")
"""


def test_the_alias_makes_room_for_the_real_ray(folder: Path, installed_ray: Path) -> None:
    program = BOTH.format(first="import skate.as_ray", version=ray_version)
    assert python(program, folder, PYTHONPATH=str(installed_ray)) == "done\n"


def test_the_alias_is_turned_on_where_the_real_ray_was_imported_before(
    folder: Path, installed_ray: Path
) -> None:
    program = BOTH.format(first="import ray; import skate.as_ray", version=ray_version)
    assert python(program, folder, PYTHONPATH=str(installed_ray)) == "done\n"


def test_workers_have_skate_while_their_driver_has_both(folder: Path, installed_ray: Path) -> None:
    printed = python(
        """
        import skate.as_ray
        from skate._base.alias import real_ray
        import ray

        real_ray()
        captured = ray

        @ray.remote
        def versions():
            import ray
            return ray.__version__, captured.__version__, ray is captured

        print(ray.get(versions.remote()))
        """,
        folder,
        PYTHONPATH=str(installed_ray),
    )
    assert printed.strip() == str((ray_version, ray_version, True))


def test_without_the_alias_the_real_ray_is_a_plain_import(folder: Path, installed_ray: Path) -> None:
    printed = python(
        """
        from skate._base.alias import real_ray
        before = __import__
        import sys
        print(real_ray() is sys.modules["ray"], real_ray("ray.late").where(), __import__ is before)
        """,
        folder,
        PYTHONPATH=str(installed_ray),
    )
    assert printed.split() == ["True", str(installed_ray / "ray" / "late.py"), "True"]


@pytest.mark.parametrize("first", ["", "import skate.as_ray, ray"])
def test_a_ray_that_is_not_installed_is_named_with_its_remedy(folder: Path, first: str) -> None:
    printed = python(
        f"""
        import sys
        import skate
        {first}
        from skate._base.alias import installed, real_ray

        class Nothing:
            @staticmethod
            def find_spec(name, path=None, target=None):
                return None

        ours = [finder for finder in sys.meta_path if type(finder).__name__ == "RayFinder"]
        before = list(sys.meta_path)
        sys.meta_path[:] = [*ours, Nothing]
        try:
            real_ray()
        except ImportError as error:
            print(error)
        sys.meta_path[:] = before
        assert installed() == bool(ours)
        if ours:
            import ray.exceptions
        """,
        folder,
    )
    assert printed == "The ray engine needs Ray: pip install 'skate[ray]'\n"
