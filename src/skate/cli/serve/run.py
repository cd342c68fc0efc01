"""`skate serve run`: runs applications until the command ends."""

from __future__ import annotations

import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

import skate
from skate._api import nodes
from skate.air._optional import load
from skate.cli.output import say
from skate.cli.serve import files
from skate.cli.serve.options import ADDRESSES, app_dir_option, environment_options, http_options
from skate.cli.serve.session import alias_ray, import_from, run_user_code, show_errors
from skate.cli.serve.targets import http_overrides, single_application, start_for

if TYPE_CHECKING:
    from skate.serve._controller.client import Client
    from skate.serve.deployment import Application

_DEBOUNCE_MS = 300  # without further changes, before files are read


@click.command()
@environment_options
@app_dir_option
@http_options
@click.option(
    "-a",
    "--address",
    envvar=ADDRESSES,
    help="The node: `auto`, or the folder of a session. Default: a private node of the command.",
)
@click.option(
    "--blocking/--non-blocking", default=True, help="Whether to run until Ctrl-C, and then clean up."
)
@click.option("-r", "--reload", is_flag=True, help="Deploy again whenever a file in the folder changes.")
@click.option("--route-prefix", default="/", help="The route of the application. Not for files.")
@click.option("--name", default="default", help="The name of the application. Not for files.")
@click.argument("target", metavar="CONFIG_OR_IMPORT_PATH")
@click.argument("arguments", nargs=-1)
def run(
    target: str,
    arguments: tuple[str, ...],
    runtime_env: str | None,
    runtime_env_json: str | None,
    working_dir: str | None,
    app_dir: str,
    http_host: str | None,
    http_port: int | None,
    address: str | None,
    blocking: bool,
    reload: bool,
    route_prefix: str,
    name: str,
) -> None:
    """Run an application, or the applications of a file, until Ctrl-C.

    ARGUMENTS, each as key=value, are passed to the function at the import path.

    Without --address, the command starts a private node, which ends with it. On a long-lived node, other
    applications keep running.
    """
    if not blocking and address is None:
        raise click.UsageError(
            "--non-blocking needs a long-lived node: start one with `skate start`, and pass --address auto."
        )
    env = files.environment(runtime_env, runtime_env_json, working_dir)
    is_config = files.is_file(target)
    if is_config and arguments:
        raise click.UsageError("Arguments belong to an import path; a file has them under `args:`.")
    alias_ray()
    with import_from(app_dir) as folder:
        http = http_overrides(http_host, http_port)
        what: _Config | _Imported
        if is_config:
            what = _Config(target, folder, http)
        else:
            single_application(target, arguments, {}, name)
            what = _Imported(target, files.pairs(arguments), name, route_prefix, http)
        with run_user_code():
            what.read()
        _init(address, env)
        watched = env.get("working_dir", folder)
        changes = _changes(watched if os.path.isdir(watched) else folder) if reload else None
        with _session(what, keep=not blocking):
            with show_errors():
                what.deploy()
            if changes is not None:
                _follow(changes, what)
            elif blocking:
                _wait()


class _Imported:
    """An application at an import path, imported by this process."""

    def __init__(
        self, path: str, args: dict[str, str], name: str, route_prefix: str, http: dict[str, Any] | None
    ) -> None:
        self._path = path
        self._http = http
        self._args = args
        self._route_prefix = route_prefix
        self._app: Application | None = None
        self.names = [name]

    def read(self) -> None:
        """Import it."""
        from skate.serve._build.importing import application_at

        self._app = application_at(self._path, self._args)

    def deploy(self) -> None:
        """Deploy it, and wait until it runs."""
        from skate import serve

        assert self._app is not None
        serve.start(http_options=self._http)
        serve.run(self._app, name=self.names[0], route_prefix=self._route_prefix)
        _tell(_client(), self.names)


class _Config:
    """The applications of a file, each of which is imported by a separate process."""

    def __init__(self, path: str, folder: str, http: dict[str, Any] | None) -> None:
        self._path = path
        self._http = http
        self._folder = folder
        self.names: list[str] = []

    def read(self) -> None:
        """Read the file."""
        self._file = files.read_config(self._path)
        self.names = [app.name for app in self._file.applications]

    def deploy(self) -> None:
        """Deploy them, wait until they run, and report those that do not."""
        client = start_for(self._file, self._http)
        client.deploy_config(self._file, folder=self._folder)
        problems = {name: problem for name in self.names if (problem := client.wait(name)) is not None}
        for name, problem in problems.items():
            say(f"Application {name!r} does not run. {problem}")
        running = [name for name in self.names if name not in problems]
        if self.names and not running:
            raise RuntimeError("None of the applications runs.")
        _tell(client, running)


def _init(address: str | None, env: dict[str, Any]) -> None:
    if skate.is_initialized():
        here = skate.get_runtime_context().get_session_dir()
        if address not in (None, "auto", here):
            say(
                f"The program has called init() itself, so --address {address} has no effect: it runs on {here}."
            )
        return
    skate.init(
        None if address is None else nodes.plain_address(address), namespace="serve", runtime_env=env or None
    )


@contextmanager
def _session(what: _Imported | _Config, *, keep: bool) -> Iterator[None]:
    """Delete the applications at the end, and shut Serve down if this command started it."""
    from skate import serve
    from skate.serve._controller.client import connect

    was_running = connect() is not None
    # Service managers send SIGTERM, which should act like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        try:
            yield
        except KeyboardInterrupt:
            say("Stopping.")
            keep = False
        except BaseException:
            keep = False
            raise
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
        if not keep:
            if not was_running:
                serve.shutdown()
            elif (client := connect()) is not None:
                client.delete(what.names, wait=True)
        skate.shutdown()


def _client() -> Client:
    from skate.serve._controller.client import connect

    found = connect()
    assert found is not None
    return found


def _tell(client: Client, names: list[str]) -> None:
    address = client.http_address()
    routes = {name: app.route_prefix for name, app in client.details().applications.items()}
    for name in names:
        where = routes.get(name)
        if address is None or where is None:
            say(f"Application {name!r} runs.")
        else:
            say(f"Application {name!r} runs at http://{address[0]}:{address[1]}{where}")


def _wait() -> None:
    """Wait for Ctrl-C, or until Serve is shut down."""
    _client().wait_for_shutdown()
    say("Serve was shut down.")


def _changes(folder: str) -> queue.SimpleQueue[None]:
    """Return a queue that receives an item whenever files in a folder change."""
    watchfiles = load("watchfiles", "skate serve run --reload")
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def watch() -> None:
        for _ in watchfiles.watch(folder, debounce=_DEBOUNCE_MS, raise_interrupt=False):
            changes.put(None)

    threading.Thread(target=watch, name="skate-serve-reload", daemon=True).start()
    say(f"Watching {folder} for changes.")
    return changes


def _follow(changes: queue.SimpleQueue[None], what: _Imported | _Config) -> None:
    """Deploy again after each change; if that fails, show the error and keep the old version."""
    folder = sys.path[0]
    while True:
        changes.get()
        _forget_modules(folder)
        say("Files have changed: deploying again.")
        try:
            with run_user_code():
                what.read()
            what.deploy()
        except (SystemExit, click.ClickException, RuntimeError, ValueError, TypeError) as error:
            if not isinstance(error, SystemExit):
                say(str(error))


def _forget_modules(folder: str) -> None:
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and os.path.abspath(path).startswith(folder + os.sep) and name != "__main__":
            del sys.modules[name]
    importlib.invalidate_caches()
