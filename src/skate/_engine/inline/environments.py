"""Process settings within one process: environment variables, working folder and module path, per task and actor.

A call runs with the settings of its runtime environment, and its changes are undone when it returns; an actor finds
its own changes again at its next call. Settings that need a process of their own, such as another Python or installed
packages, raise an error.
"""

from __future__ import annotations

import bdb
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from skate._base.errors import RuntimeEnvSetupError
from skate._engine.common.signals import SignalExit
from skate._engine.inline.context import current, environment_text

_NEED_A_PROCESS = {
    "pip": "installs packages",
    "uv": "installs packages",
    "conda": "uses another Python",
    "py_executable": "uses another Python",
}


class ProcessState(NamedTuple):
    """Environment variables and the working folder ("" if it does not exist)."""

    variables: dict[bytes, bytes]
    folder: str


class ProcessSettings:
    """The process settings of a task or an actor."""

    __slots__ = ("changed", "folder", "module_path", "variables")

    def __init__(
        self, variables: Mapping[str, str], folder: str | None = None, module_path: tuple[str, ...] = ()
    ) -> None:
        self.variables = {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
        self.folder = folder
        self.module_path = module_path
        self.changed: ProcessState | None = None  # the state after its last call, if the call changed it

    def with_variables(self, variables: Mapping[str, str]) -> ProcessSettings:
        """Return a copy with additional variables."""
        settings = ProcessSettings(variables, self.folder, self.module_path)
        if self.changed is not None:
            settings.changed = self.changed._replace(
                variables={**self.changed.variables, **settings.variables}
            )
        settings.variables = {**self.variables, **settings.variables}
        return settings


class Environments:
    """Prepares runtime environments, and applies them to running code."""

    def __init__(self, job: dict[str, Any], session: str) -> None:
        self.job = job
        self._session = session
        self._made: dict[str, ProcessSettings] = {}
        self._outside: ProcessState | None = None  # the state of the driver, while a task runs
        self._thread = 0  # the thread whose code has its settings applied; they apply to the whole process

    def merge_job_environment(self, own: dict[str, Any] | None) -> dict[str, Any]:
        """Return the runtime environment of a submission: its own, merged with the inherited one."""
        running = current.get()
        inherited = self.job if running is None else running.template.environment
        if not own:
            return inherited
        from skate._base.runtime_envs.inheritance import for_task, merge

        return dict(merge(inherited, for_task(own)))

    def settings_for(self, environment: dict[str, Any], variables: Mapping[str, str]) -> ProcessSettings:
        """Return the settings of a task or an actor; prepare its environment at the first use.

        Args:
            environment: The runtime environment.
            variables: Additional variables, which select its accelerators.

        Raises:
            RuntimeEnvSetupError: The environment cannot be prepared.
        """
        if not environment:
            return ProcessSettings(variables)
        key = environment_text(environment)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._make(environment)
        return made.with_variables(variables)

    def _make(self, environment: dict[str, Any]) -> ProcessSettings:
        from skate._engine.common.environments import default_cache_dir, prepare, run_setup_hook

        check_supported(environment)
        prepared = prepare(environment, default_cache_dir(), session_dir=Path(self._session))
        made = ProcessSettings(prepared.env_vars, prepared.cwd, prepared.sys_path)
        if prepared.setup_hook is not None:
            with self.apply(made):  # changes of the hook apply to all
                run_setup_hook(prepared.setup_hook)
        return made

    @contextmanager
    def apply(self, settings: ProcessSettings) -> Iterator[None]:
        """Apply settings to the process for the length of a `with` block."""
        if self._thread not in (0, threading.get_ident()):
            with _set_variables(settings.variables):
                yield
            return
        before = _read_state()
        outermost = self._outside is None
        self._thread = threading.get_ident()
        outside = self._outside = self._outside or before
        start = settings.changed or ProcessState(
            {**outside.variables, **settings.variables}, settings.folder or outside.folder
        )
        _change_state(before, start)
        for entry in reversed(settings.module_path):
            sys.path.insert(0, entry)
        try:
            yield
        finally:
            for entry in settings.module_path:
                if entry in sys.path:
                    sys.path.remove(entry)
            after = _read_state()
            if after != start:
                settings.changed = after
            _change_state(after, before)
            if outermost:
                self._outside = None
                self._thread = 0


def check_supported(environment: Mapping[str, Any]) -> None:
    """Raise RuntimeEnvSetupError if an environment needs a process of its own."""
    for name, what in _NEED_A_PROCESS.items():
        if environment.get(name):
            raise RuntimeEnvSetupError(
                f"runtime_env['{name}'] {what}, which the inline engine cannot do: it runs everything in this "
                "process. Make it part of the environment you start the program in, leave the field out, or use "
                "the local engine."
            )


def _read_state() -> ProcessState:
    # Reading os.environ item by item takes a hundred times as long, and this runs twice per call.
    variables = getattr(os.environ, "_data", None)
    if variables is None:
        variables = dict(os.environb)
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    return ProcessState(dict(variables), folder)


@contextmanager
def _set_variables(variables: Mapping[bytes, bytes]) -> Iterator[None]:
    """Set only variables, because the settings of another thread apply meanwhile."""
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


def _change_state(now: ProcessState, then: ProcessState) -> None:
    if now.variables != then.variables:
        for name in now.variables.keys() - then.variables.keys():
            del os.environb[name]
        for name, value in then.variables.items():
            if now.variables.get(name) != value:
                os.environb[name] = value
    if then.folder and now.folder != then.folder:
        os.chdir(then.folder)


def fatal_exceptions() -> tuple[type[BaseException], ...]:
    """Return the exceptions that end the program: Ctrl-C, SIGTERM, pdb's `quit`, the end of a test."""
    outcomes = sys.modules.get("_pytest.outcomes")
    if outcomes is None:
        return KeyboardInterrupt, SignalExit, bdb.BdbQuit
    return KeyboardInterrupt, SignalExit, bdb.BdbQuit, outcomes.OutcomeException


class OutsideLoop:
    """Leave the event loop that runs in this thread, for the length of a `with` block.

    Tasks and the engine may start an event loop, even if the caller runs in one. asyncio documents the functions that
    are used here for other implementations of event loops.
    """

    __slots__ = ("_loop", "_task")

    _loop: Any
    _task: Any

    def __enter__(self) -> None:
        self._loop = self._task = None
        asyncio = sys.modules.get("asyncio")
        if asyncio is None:
            return
        self._loop = asyncio._get_running_loop()
        if self._loop is not None:
            self._task = asyncio.current_task(self._loop)
            if self._task is not None:
                asyncio.tasks._leave_task(self._loop, self._task)
            asyncio._set_running_loop(None)

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._loop is not None:
            import asyncio

            asyncio._set_running_loop(self._loop)
            if self._task is not None:
                asyncio.tasks._enter_task(self._loop, self._task)


def strip_context(error: BaseException, outer: BaseException | None) -> None:
    """Remove the caller's exception `outer` from the context of `error`, as if it was raised in another process."""
    if outer is None:
        return
    inner = error
    seen = set()
    while inner.__context__ is not None and id(inner) not in seen:
        if inner.__context__ is outer:
            inner.__context__ = None
            return
        seen.add(id(inner))
        inner = inner.__context__
