"""`skate serve run`: applications for as long as the command runs."""

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
from skate.cli.serve.session import alias_ray, import_from_folder, refused, report_user_errors
from skate.cli.serve.targets import given_http, one_application, started_for

if TYPE_CHECKING:
    from skate.serve._controller.client import Client
    from skate.serve.deployment import Application

_SETTLE_MS = 300  # for how long files have to be left alone before they are read


@click.command()
@environment_options
@app_dir_option
@http_options
@click.option(
    "-a",
    "--address",
    envvar=ADDRESSES,
    help="The node to run on: `auto`, or a session's folder. Default: a node of the command's own.",
)
@click.option(
    "--blocking/--non-blocking", default=True, help="Whether to stay until Ctrl-C, and then clean up."
)
@click.option("-r", "--reload", is_flag=True, help="Deploy anew whenever a file in the folder changes.")
@click.option("--route-prefix", default="/", help="Where the application is reached. A file says it itself.")
@click.option("--name", help="What the application is called. A file says it itself.")
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

    ARGUMENTS, each as key=value, are given to the function at the import path.

    Without --address the node is the command's own and ends with it. On a node that stays, applications that
    others have deployed go on.
    """
    if not blocking and address is None:
        raise click.UsageError(
            "With --non-blocking, somebody else has to keep the applications running: start a node with `skate start` "
            "and name it with --address auto."
        )
    env = files.environment(runtime_env, runtime_env_json, working_dir)
    is_config = files.is_file(target)
    if is_config and arguments:
        raise click.UsageError("Arguments belong to an import path; a file has them under `args:`.")
    alias_ray()
    with import_from_folder(app_dir) as folder:
        http = given_http(http_host, http_port)
        what: _Config | _Imported
        if is_config:
            what = _Config(target, folder, http)
        else:
            (app,) = one_application(target, arguments, {}, name).applications
            what = _Imported(target, files.pairs(arguments), app.name, route_prefix, http)
        with report_user_errors():
            what.read()
        _init(address, env)
        watched = env.get("working_dir", folder)
        changes = _changes(watched if os.path.isdir(watched) else folder) if reload else None
        with _session(what, keep=not blocking):
            with refused():
                what.deploy()
            if changes is not None:
                _follow(changes, what)
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
        """Import it."""
        from skate.serve._build.importing import import_application

        self._app = import_application(self._path, self._args)

    def deploy(self) -> None:
        """Run it, and wait until it does."""
        from skate import serve

        assert self._app is not None
        serve.start(http_options=self._http)
        serve.run(self._app, name=self.names[0], route_prefix=self._route_prefix)
        _tell(_client(), self.names)


class _Config:
    """The applications of a file, each of which a process of its own imports."""

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
        """Deploy them, and wait until they run; those that do not are told of."""
        client = started_for(self._file, self._http)
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
    """Clean up what was deployed, however it ends; of Serve itself, if it was started here."""
    from skate import serve
    from skate.serve._controller.client import connect

    was_running = connect() is not None
    # Whoever stops a service does so with this signal, and means what Ctrl-C means.
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
            signal.signal(number, signal.SIG_IGN)  # impatience would leave something behind
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
    """Wait for Ctrl-C, or for somebody who shuts Serve down."""
    _client().wait_for_shutdown()
    say("Serve was shut down.")


def _changes(folder: str) -> queue.SimpleQueue[None]:
    """Return a queue that gets something whenever files in a folder have changed."""
    watchfiles = load("watchfiles", "skate serve run --reload")
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def watch() -> None:
        for _ in watchfiles.watch(folder, debounce=_SETTLE_MS, raise_interrupt=False):
            changes.put(None)

    threading.Thread(target=watch, name="skate-serve-reload", daemon=True).start()
    say(f"Watching {folder} for changes.")
    return changes


def _follow(changes: queue.SimpleQueue[None], what: _Imported | _Config) -> None:
    """Deploy anew whenever something has changed; what cannot be deployed is told, and the old version stays."""
    folder = sys.path[0]
    while True:
        changes.get()
        _forget_modules(folder)
        say("Files have changed: deploying anew.")
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
