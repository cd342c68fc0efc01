"""The alias in processes that a program starts itself, and in modules that are loaded lazily."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from skate._base.alias import switch


def skate_run(folder: Path, text: str, **environment: str) -> str:
    (folder / "program.py").write_text(dedent(text))
    done = subprocess.run(
        [sys.executable, "-m", "skate.cli", "run", "program.py"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_children_of_multiprocessing_have_the_alias_however_they_are_started(tmp_path: Path) -> None:
    printed = skate_run(
        tmp_path,
        """
        import multiprocessing
        import ray

        def package(_):
            import ray.util.queue
            return ray.get(ray.put(ray.util.queue.Queue.__module__))

        if __name__ == "__main__":
            for method in ("fork", "spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(method, pool.map(package, [0]))
        """,
    )
    assert printed.splitlines() == [f"{m} ['skate.util.queue']" for m in ("fork", "spawn", "forkserver")]


def test_a_python_program_started_by_a_driver_or_a_task_has_the_alias(tmp_path: Path) -> None:
    printed = skate_run(
        tmp_path,
        """
        import subprocess, sys
        import ray

        def child():
            return subprocess.check_output([sys.executable, "-c", "import ray; print(ray)"], text=True)

        print(child() == ray.get(ray.remote(child).remote()), child())
        """,
    )
    assert printed.startswith("True <module 'ray' (Skate)")


def test_a_child_in_an_environment_without_skate_gets_the_ray_that_is_installed_there(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "ray.py").write_text("__version__ = 'of the child'\n")
    done = subprocess.run(
        # -S leaves out site-packages, in which Skate is installed.
        [sys.executable, "-S", "-c", "import ray; print(ray.__version__)"],
        env={"PYTHONPATH": f"{switch.IMPORT_PATH}{os.pathsep}{site}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "of the child\n"


def test_turning_the_alias_off_leaves_the_search_path_as_it_was(tmp_path: Path) -> None:
    printed = skate_run(
        tmp_path,
        """
        import os, sys
        import skate.as_ray

        print(os.environ["PYTHONPATH"].split(os.pathsep)[0] == sys.path[1])
        skate.as_ray.uninstall()
        print(os.environ["PYTHONPATH"], [entry for entry in sys.path if "import_path" in entry])
        """,
        PYTHONPATH=str(tmp_path),
    )
    assert printed.splitlines() == ["True", f"{tmp_path} []"]


def test_ray_and_its_modules_may_be_loaded_lazily(tmp_path: Path) -> None:
    printed = skate_run(
        tmp_path,
        """
        import importlib.util, sys

        def lazily(name):
            spec = importlib.util.find_spec(name)
            spec.loader = loader = importlib.util.LazyLoader(spec.loader)
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            return module

        lazy_queue, lazy_ray = lazily("ray.util.queue"), lazily("ray")
        print(lazy_queue.Queue is lazy_ray.util.queue.Queue, lazy_ray.get(lazy_ray.put(1)))
        import ray, skate
        print(ray is lazy_ray, type(skate).__name__, skate.util.queue is lazy_queue, repr(ray)[:20])
        """,
    )
    assert printed.splitlines() == ["True 1", "True module True <module 'ray' (Skate"]


def test_a_function_that_is_imported_as_a_module_is_said_to_be_none(tmp_path: Path) -> None:
    printed = skate_run(
        tmp_path,
        """
        try:
            import ray.nodes
        except ModuleNotFoundError as error:
            print(error)
        """,
    )
    assert printed == (
        "No module named 'ray.nodes'. ray.nodes exists, but is not a module: write `from ray import nodes`.\n"
    )
