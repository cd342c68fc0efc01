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
from skate.cli.serve.session import alias_ray, import_from_folder, report_serve_errors, report_user_errors
from skate.cli.serve.targets import config_for_import_path, http_arguments, start_for_config

if TYPE_CHECKING:
    from skate.serve._controller.client import Client
    from skate.serve.deployment import Application

_DEBOUNCE_MS = 300  # how long files must stay unchanged before a reload


@click.command()
@environment_options
@app_dir_option
@http_options
@click.option(
    "-a",
    "--address",
    envvar=ADDRESSES,
    help="The node to run on: `auto`, or a session's folder. Default: a new node.",
)
@click.option("--blocking/--non-blocking", default=True, help="Whether to wait for Ctrl-C and then clean up.")
@click.option("-r", "--reload", is_flag=True, help="Deploy again whenever a file in the folder changes.")
@click.option(
    "--route-prefix", default="/", help="The prefix of the application's routes. A file contains its own."
)
@click.option("--name", help="The name of the application. A file contains its own names.")
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
    name: str | None,
) -> None:
    """Run an application, or all those of a file, until Ctrl-C.

    ARGUMENTS, each as key=value, are passed to the function at the import path.

    Without --address, the command starts a node of its own, which ends with it. On an existing node, other
    applications keep running.
    """
    if not blocking and address is None:
        raise click.UsageError(
            "--non-blocking requires a node that keeps the applications running: start one with `skate start` and add "
            "--address auto."
        )
    env = files.environment(runtime_env, runtime_env_json, working_dir)
    is_config = files.is_file(target)
    if is_config and arguments:
        raise click.UsageError("Arguments require an import path; a file contains them under `args:`.")
    alias_ray()
    with import_from_folder(app_dir) as folder:
        http = http_arguments(http_host, http_port)
        what: _Config | _Imported
        if is_config:
            what = _Config(target, folder, http)
        else:
            (app,) = config_for_import_path(target, arguments, {}, name).applications
            what = _Imported(target, files.pairs(arguments), app.name, route_prefix, http)
        with report_user_errors():
            what.read()
        _init(address, env)
        watched = env.get("working_dir", folder)
        changes = _watch_folder(watched if os.path.isdir(watched) else folder) if reload else None
        with _session(what, keep=not blocking):
            with report_serve_errors():
                what.deploy()
            if changes is not None:
                _redeploy_on_change(changes, what)
            elif blocking:
                _wait()


class _Imported:
    """An application at an import path, which this process imports."""

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
        """Import the application."""
        from skate.serve._build.importing import import_application

        self._app = import_application(self._path, self._args)

    def deploy(self) -> None:
        """Deploy the application and wait until it runs."""
        from skate import serve

        assert self._app is not None
        serve.start(http_options=self._http)
        serve.run(self._app, name=self.names[0], route_prefix=self._route_prefix)
        _report_running(_client(), self.names)


class _Config:
    """The applications of a configuration file. Separate processes import them."""

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
        """Deploy the applications and wait until they run; report those that do not."""
        client = start_for_config(self._file, self._http)
        client.deploy_config(self._file, folder=self._folder)
        problems = {name: problem for name in self.names if (problem := client.wait(name)) is not None}
        for name, problem in problems.items():
            say(f"Application {name!r} does not run. {problem}")
        running = [name for name in self.names if name not in problems]
        if self.names and not running:
            raise RuntimeError("None of the applications runs.")
        _report_running(client, running)


def _init(address: str | None, env: dict[str, Any]) -> None:
    if skate.is_initialized():
        here = skate.get_runtime_context().get_session_dir()
        if address not in (None, "auto", here):
            say(
                f"The program has called init() itself, so --address {address} has no effect: the node is {here}."
            )
        return
    skate.init(
        None if address is None else nodes.plain_address(address), namespace="serve", runtime_env=env or None
    )


@contextmanager
def _session(what: _Imported | _Config, *, keep: bool) -> Iterator[None]:
    """Remove the applications at the end, and Serve itself if this command started it."""
    from skate import serve
    from skate.serve._controller.client import connect

    was_running = connect() is not None
    # Service managers stop a process with SIGTERM: treat it like Ctrl-C.
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
            signal.signal(number, signal.SIG_IGN)  # an interrupted cleanup would leave processes behind
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


def _report_running(client: Client, names: list[str]) -> None:
    address = client.http_address()
    routes = {name: app.route_prefix for name, app in client.details().applications.items()}
    for name in names:
        where = routes.get(name)
        if address is None or where is None:
            say(f"Application {name!r} runs.")
        else:
            say(f"Application {name!r} runs at http://{address[0]}:{address[1]}{where}")


def _wait() -> None:
    """Wait for Ctrl-C, or for a shutdown of Serve."""
    _client().wait_for_shutdown()
    say("Serve was shut down.")


def _watch_folder(folder: str) -> queue.SimpleQueue[None]:
    """Return a queue that receives an item after each change of files in a folder."""
    watchfiles = load("watchfiles", "skate serve run --reload")
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def watch() -> None:
        for _ in watchfiles.watch(folder, debounce=_DEBOUNCE_MS, raise_interrupt=False):
            changes.put(None)

    threading.Thread(target=watch, name="skate-serve-reload", daemon=True).start()
    say(f"Watching {folder} for changes.")
    return changes


def _redeploy_on_change(changes: queue.SimpleQueue[None], what: _Imported | _Config) -> None:
    """Deploy again after each change; on an error, report it and keep the old version."""
    folder = sys.path[0]
    while True:
        changes.get()
        _forget_modules(folder)
        say("Files have changed. Deploying again.")
        try:
            with report_user_errors():
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
