"""Where commands of `skate serve` work: attached to a node, importing from a folder, running code of users."""

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
def attached(address: str | None) -> Iterator[None]:
    """Be a program of a node for a while; where a session runs in this process already, of that one."""
    if skate.is_initialized():
        yield
        return
    skate.init(nodes.plain_address(address) if address else None, namespace="serve", log_to_driver=False)
    try:
        yield
    finally:
        skate.shutdown()


@contextmanager
def asked(address: str) -> Iterator[Client | None]:
    """Yield the client of Serve on a node, or None if it does not run there."""
    from skate.serve._controller.client import connect

    with nodes.join(nodes.plain_address(address)):
        yield connect()


@contextmanager
def import_from_folder(app_dir: str) -> Iterator[str]:
    """Import from a folder, in this process and in those that a session of it starts."""
    folder = os.path.abspath(app_dir)
    sys.path.insert(0, folder)
    try:
        yield folder
    finally:
        sys.path.remove(folder)


def alias_ray() -> None:
    """Let programs be written for Ray Serve: what they import is Skate, as in `skate run`."""
    if sys.modules.get("ray") is not skate:
        from skate import as_ray

        as_ray.install()


@contextmanager
def report_user_errors() -> Iterator[None]:
    """Show an error of the user's code as Python would, and end."""
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
def refused() -> Iterator[None]:
    """Show why Serve does not start, without a traceback."""
    try:
        yield
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        cause: BaseException = error
        while isinstance(cause, RayTaskError) and cause.cause is not None:
            cause = cause.cause  # what happened, without the processes that it happened in
        raise click.ClickException(str(cause)) from error
