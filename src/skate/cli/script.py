"""Runs a Python program in this process the way `python` does, with Skate imported as `ray`."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

MAIN = "__main__"


class Script:
    """A script, a folder or zip file with a `__main__.py`, or a module, and its arguments."""

    def __init__(self, name: str, arguments: tuple[str, ...], *, is_module: bool) -> None:
        self._name = name
        self._arguments = arguments
        self._is_module = is_module

    def run(self) -> None:
        """Run it as the main program of this process, whose exit and errors it determines."""
        from skate import as_ray

        as_ray.install()
        _hide_own_frames()
        if self._is_module:
            _run_module(self._name, self._arguments)
        elif pkgutil.get_importer(self._name) is not None:
            _run_container(self._name, self._arguments)
        else:
            _run_file(self._name, self._arguments)


class Handover(BaseException):
    """Unwinds click, which handles errors and interrupts in its own way, to run a script outside of it."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.script = script


def _run_file(path: str, arguments: tuple[str, ...]) -> None:
    sys.argv = [path, *arguments]
    _replace_first_path(os.path.dirname(os.path.realpath(path)))
    path = os.path.abspath(path)
    with io.open_code(path) as file:
        source = file.read()
    main = _new_main(__file__=path, __loader__=SourceFileLoader(MAIN, path), __cached__=None)
    _execute(compile(source, path, "exec", dont_inherit=True), main)


def _run_container(path: str, arguments: tuple[str, ...]) -> None:
    sys.argv = [path, *arguments]
    _replace_first_path(None)
    sys.path.insert(0, os.path.abspath(path))
    spec = PathFinder.find_spec(MAIN, [sys.path[0]])
    if spec is None:
        sys.exit(f"skate run: {path!r} contains no __main__.py.")
    _execute_spec(spec)


def _run_module(name: str, arguments: tuple[str, ...]) -> None:
    sys.argv = ["-m", *arguments]
    _replace_first_path(os.getcwd())
    spec = _found(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.{MAIN}"
        spec = _found(name)
    if spec is None:
        sys.exit(f"skate run: the module {name!r} does not exist.")
    sys.argv[0] = spec.origin or name
    _execute_spec(spec)


def _found(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a parent package exists, and one of its imports fails
        return None


def _replace_first_path(folder: str | None) -> None:
    """Replace the folder of our own program, which the interpreter has put first unless it runs in safe-path mode."""
    if not sys.flags.safe_path:
        sys.path[:1] = [] if folder is None else [folder]


def _execute_spec(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    code = loader.get_code(spec.name)
    if code is None:
        sys.exit(f"skate run: {spec.name} has no Python code to run.")
    attributes = {"__file__": spec.origin, "__cached__": spec.cached, "__loader__": loader, "__spec__": spec}
    _execute(code, _new_main(__package__=spec.parent, **attributes))


def _new_main(**attributes: Any) -> ModuleType:
    main = ModuleType(MAIN)
    main.__dict__.update(__builtins__=builtins, __annotations__={}, **attributes)
    sys.modules[MAIN] = main
    return main


def _execute(code: CodeType, main: ModuleType) -> None:
    exec(code, main.__dict__)


def _hide_own_frames() -> None:
    """Remove the frames of this module from uncaught tracebacks."""
    show = sys.excepthook

    def show_user_frames(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        trace = _user_frames(trace)
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = show_user_frames


def _user_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback below the last frame of this module."""
    below = trace
    while trace is not None:
        if trace.tb_frame.f_globals is globals():
            below = trace.tb_next
        trace = trace.tb_next
    return below
