"""Context managers for the commands of `skate serve`: attach to a node, import from a folder, run user code."""

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
def attach(address: str | None) -> Iterator[None]:
    """Attach to a node, unless this process has a session already."""
    if skate.is_initialized():
        yield
        return
    skate.init(nodes.plain_address(address) if address else None, namespace="serve", log_to_driver=False)
    try:
        yield
    finally:
        skate.shutdown()


@contextmanager
def serve_client(address: str) -> Iterator[Client | None]:
    """Yield the client of Serve on a node, or None if it does not run there."""
    from skate.serve._controller.client import connect

    with nodes.join(nodes.plain_address(address)):
        yield connect()


@contextmanager
def import_from(app_dir: str) -> Iterator[str]:
    """Import from a folder, in this process and in the workers of its session."""
    folder = os.path.abspath(app_dir)
    sys.path.insert(0, folder)
    try:
        yield folder
    finally:
        sys.path.remove(folder)


def alias_ray() -> None:
    """Import Skate as `ray`, as `skate run` does, for programs that are written for Ray Serve."""
    if sys.modules.get("ray") is not skate:
        from skate import as_ray

        as_ray.install()


@contextmanager
def run_user_code() -> Iterator[None]:
    """Show an exception of user code like Python does, and exit."""
    try:
        yield
    except click.ClickException:
        raise
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        say("".join(traceback.format_exception(type(error), error, trace)).rstrip())
        raise SystemExit(1) from None


def _is_ours(path: str) -> bool:
    return path.startswith((os.path.dirname(skate.__file__), "<frozen importlib")) or path.endswith(
        f"importlib{os.sep}__init__.py"
    )


@contextmanager
def show_errors() -> Iterator[None]:
    """Show errors of Serve without a traceback."""
    try:
        yield
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        cause: BaseException = error
        while isinstance(cause, RayTaskError) and cause.cause is not None:
            cause = cause.cause  # the original error, without the remote traceback
        raise click.ClickException(str(cause)) from error
