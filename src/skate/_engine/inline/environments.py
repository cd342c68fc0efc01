"""What would be a process' own, inside one process: environment variables, working folder, module path.

A call gets those of its runtime environment while it runs, and what it changes is undone when it returns, so that
it disturbs nobody; an actor finds its own changes again at its next call. What belongs to a process for good
(another Python, installed packages) cannot be had here, and says so.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from skate._base.errors import RuntimeEnvSetupError
from skate._engine.inline.context import current, environment_text

_NEED_A_PROCESS = {
    "pip": "installs packages",
    "uv": "installs packages",
    "conda": "uses another Python",
    "py_executable": "uses another Python",
}


class Surroundings(NamedTuple):
    """The environment variables and the working folder ("" when it is gone)."""

    variables: dict[bytes, bytes]
    folder: str


class Home:
    """The surroundings of a task or an actor."""

    __slots__ = ("folder", "left", "module_path", "variables")

    def __init__(
        self, variables: Mapping[str, str], folder: str | None = None, module_path: tuple[str, ...] = ()
    ) -> None:
        self.variables = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
        self.folder = folder
        self.module_path = module_path
        self.left: Surroundings | None = None  # how its last call left them, if it changed them

    def with_variables(self, variables: Mapping[str, str]) -> Home:
        """Return a home of its own, with more variables."""
        home = Home(variables, self.folder, self.module_path)
        if self.left is not None:
            home.left = self.left._replace(variables={**self.left.variables, **home.variables})
        home.variables = {**self.variables, **home.variables}
        return home


class Environments:
    """Makes runtime environments, and lets code run in them."""

    def __init__(self, job: dict[str, Any], session: str) -> None:
        self.job = job
        self._session = session
        self._made: dict[str, Home] = {}
        self._outside: Surroundings | None = None  # the driver's, while something else runs
        self._thread = 0  # which thread's code has its surroundings; they are the whole process' in truth

    def merged(self, own: dict[str, Any] | None) -> dict[str, Any]:
        """Return the environment of what is submitted here with an environment of its own, or none."""
        running = current.get()
        inherited = self.job if running is None else running.template.environment
        if not own:
            return inherited
        from skate._base.runtime_envs.inheritance import for_task, merge

        return dict(merge(inherited, for_task(own)))

    def home(self, environment: dict[str, Any], variables: Mapping[str, str]) -> Home:
        """Return the home of a task or an actor; make its environment at its first use.

        Args:
            environment: The runtime environment.
            variables: More variables, which show it its accelerators.

        Raises:
            RuntimeEnvSetupError: It cannot be had.
        """
        if not environment:
            return Home(variables)
        key = environment_text(environment)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(environment)
        return made.with_variables(variables)

    def _make(self, environment: dict[str, Any]) -> Home:
        from skate._engine.common.environments import default_cache_dir, prepare, run_setup_hook

        refuse(environment)
        prepared = prepare(environment, default_cache_dir(), session_dir=Path(self._session))
        made = Home(prepared.env_vars, prepared.cwd, prepared.sys_path)
        if prepared.setup_hook is not None:
            with self.inside(made):  # what the hook changes is there for all
                run_setup_hook(prepared.setup_hook)
        return made

    @contextmanager
    def inside(self, home: Home) -> Iterator[None]:
        """Let code run at its home; then let the caller find everything as it was."""
        if self._thread not in (0, threading.get_ident()):
            with _beside_others(home.variables):
                yield
            return
        before = _look()
        outermost = self._outside is None
        self._thread = threading.get_ident()
        outside = self._outside = self._outside or before
        start = home.left or Surroundings(
            {**outside.variables, **home.variables}, home.folder or outside.folder
        )
        _change(before, start)
        for entry in reversed(home.module_path):
            sys.path.insert(0, entry)
        try:
            yield
        finally:
            for entry in home.module_path:
                if entry in sys.path:
                    sys.path.remove(entry)
            after = _look()
            if after != start:
                home.left = after
            _change(after, before)
            if outermost:
                self._outside = None
                self._thread = 0


def refuse(environment: Mapping[str, Any]) -> None:
    """Raise RuntimeEnvSetupError if an environment needs a process of its own."""
    for name, what in _NEED_A_PROCESS.items():
        if environment.get(name):
            raise RuntimeEnvSetupError(
                f"runtime_env['{name}'] {what}, which the inline engine cannot do: it runs everything in this "
                "process. Make it part of the environment you start the program in, leave the field out, or use "
                "the local engine."
            )


def _look() -> Surroundings:
    # Reading os.environ item by item takes a hundred times as long, and this is done twice for every call.
    variables = getattr(os.environ, "_data", None)
    if variables is None:
        variables = dict(os.environb)
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    return Surroundings(dict(variables), folder)


@contextmanager
def _beside_others(variables: Mapping[bytes, bytes]) -> Iterator[None]:
    """Set variables while code of another thread runs in other surroundings: those are left to it."""
    before = {name: os.environb.get(name) for name in variables}
    os.environb.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environb.pop(name, None)
            else:
                os.environb[name] = value


def _change(now: Surroundings, then: Surroundings) -> None:
    if now.variables != then.variables:
        for name in now.variables.keys() - then.variables.keys():
            del os.environb[name]
        for name, value in then.variables.items():
            if now.variables.get(name) != value:
                os.environb[name] = value
    if then.folder and now.folder != then.folder:
        os.chdir(then.folder)
