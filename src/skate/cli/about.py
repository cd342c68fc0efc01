"""`skate version` and `skate doctor`: what is installed, and whether it can work here."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import sys

import click

import skate
from skate._api import nodes
from skate.cli.output import write_table

VERSION = skate.__version__

FEW_FILES = 1024
LITTLE_SHARED_MEMORY = 256 << 20
_OPTIONAL = ("numpy", "pyarrow", "torch", "ray", "optuna", "uvicorn")

OK, POOR, BAD = "ok", "warning", "problem"
Finding = tuple[str, str, str]


@click.command()
def version() -> None:
    """Write the version."""
    click.echo(VERSION)


@click.command()
def doctor() -> None:
    """Check whether Skate can work well on this machine.

    Ends with status 1 if it cannot.
    """
    findings = [*_system(), _temporary_folder(), _shared_memory(), _open_files(), _programs(), _extras()]
    write_table(["check", "result", "what"], findings)
    if any(result == BAD for _, result, _ in findings):
        raise SystemExit(1)


def _system() -> list[Finding]:
    enough = sys.version_info >= (3, 11)
    python = f"{platform.python_version()} at {sys.executable}"
    where = f"{platform.system()} {platform.release()} ({platform.machine()})"
    known = platform.system() in ("Linux", "Darwin")
    return [
        ("skate", OK, f"{VERSION} at {os.path.dirname(skate.__file__)}"),
        ("python", OK if enough else BAD, python if enough else f"{python}; Skate needs 3.11 or newer"),
        ("system", OK if known else BAD, where if known else f"{where}; Skate runs on Linux and macOS"),
        (
            "cpus",
            OK,
            f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}",
        ),
    ]


def _temporary_folder() -> Finding:
    try:
        folder = nodes.root()
    except nodes.UnusableFolderError as error:
        return "sessions", BAD, str(error)
    return "sessions", OK, f"{folder}, {shutil.disk_usage(folder).free >> 30} GiB free for spilled objects"


def _shared_memory() -> Finding:
    try:
        folder = nodes.shm_root()
        if folder == nodes.root():
            return "shared memory", POOR, "/dev/shm cannot be written to: objects are shared through files"
    except nodes.UnusableFolderError as error:
        return "shared memory", BAD, str(error)
    free = shutil.disk_usage(folder).free
    if free < LITTLE_SHARED_MEMORY:
        return "shared memory", POOR, f"{free >> 20} MiB free in {folder}; in a container, raise --shm-size"
    return "shared memory", OK, f"{free >> 20} MiB free in {folder}"


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard <= FEW_FILES:
        return "open files", POOR, f"at most {hard}; many actors need more: raise `ulimit -Hn`"
    return "open files", OK, "unlimited" if hard < 0 else f"at most {hard}"


def _programs() -> Finding:
    try:
        found = nodes.nodes()
    except OSError as error:
        return "nodes", BAD, f"cannot be searched: {error}"
    words = [f"{node.process} ({'private' if node.private else 'long-lived'})" for node in found]
    return "nodes", OK, ", ".join(words) or "none runs"


def _extras() -> Finding:
    installed = [name for name in _OPTIONAL if importlib.util.find_spec(name) is not None]
    return "libraries", OK, ", ".join(installed) or "none of the optional ones is installed"
