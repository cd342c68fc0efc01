"""Context managers of `skate serve`: connections to nodes, import paths, and error reports."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

import skate
from skate._api import nodes
from skate.cli.output import say
from skate.exceptions import RayTaskError

if TYPE_CHECKING:
    from skate.serve._controller.client import Client


@contextmanager
def attach_to_node(address: str | None) -> Iterator[None]:
    """Connect to a node; in a process with a session, use that session."""
    if skate.is_initialized():
        yield
        return
    skate.init(_node_at(address) if address else None, namespace="serve", log_to_driver=False)
    try:
        yield
    finally:
        skate.shutdown()


@contextmanager
def open_client(address: str) -> Iterator[Client | None]:
    """Yield the client of Serve on a node, or None if Serve does not run there."""
    from skate.serve._controller.client import connect

    with nodes.join(_node_at(address)):
        yield connect()


def _node_at(address: str) -> str:
    if nodes.is_dashboard(address):
        raise click.ClickException(
            "This command needs the node itself, and --address is that of a dashboard: deploy, status, config and "
            "shutdown work over HTTP."
        )
    return nodes.plain_address(address)


@contextmanager
def import_from_folder(app_dir: str) -> Iterator[str]:
    """Add a folder to the import path of this process and of those that its session starts."""
    folder = os.path.abspath(app_dir)
    sys.path.insert(0, folder)
    try:
        yield folder
    finally:
        sys.path.remove(folder)


def alias_ray() -> None:
    """Make `import ray` import Skate, as in `skate run`, so that programs written for Ray Serve work."""
    if sys.modules.get("ray") is not skate:
        from skate import as_ray

        as_ray.install()


@contextmanager
def report_user_errors() -> Iterator[None]:
    """Print the traceback of an error in user code, without Skate's frames, and exit."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and _is_internal(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        say("".join(traceback.format_exception(type(error), error, trace)).rstrip())
        raise SystemExit(1) from None


def _is_internal(path: str) -> bool:
    return path.startswith((os.path.dirname(skate.__file__), "<frozen importlib")) or path.endswith(
        f"importlib{os.sep}__init__.py"
    )


@contextmanager
def report_serve_errors() -> Iterator[None]:
    """Turn an error of Serve into an error message of the command, without a traceback."""
    try:
        yield
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        cause: BaseException = error
        while isinstance(cause, RayTaskError) and cause.cause is not None:
            cause = cause.cause  # without the frames of remote processes
        raise click.ClickException(str(cause)) from error
