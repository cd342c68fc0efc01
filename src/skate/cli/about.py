"""`skate version` and `skate doctor`."""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import resource
import shutil
import sys

import click

import skate
from skate._api import machine, nodes
from skate.cli.output import write_table

VERSION = skate.__version__

MIN_OPEN_FILES = 1024
_OPTIONAL = ("numpy", "pyarrow", "torch", "ray", "optuna", "uvicorn")

OK, POOR, BAD = "ok", "warning", "problem"
Finding = tuple[str, str, str]


@click.command()
def version() -> None:
    """Write the version."""
    click.echo(VERSION)


@click.command()
def doctor() -> None:
    """Check whether this machine meets Skate's requirements.

    Exits with status 1 if it does not.
    """
    findings = [*_system(), _temporary_folder(), _shared_memory(), _open_files(), _nodes(), _libraries()]
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
            return "shared memory", POOR, "/dev/shm is not writable: objects are shared through files"
    except nodes.UnusableFolderError as error:
        return "shared memory", BAD, str(error)
    free = machine.free_space(folder)
    if free == math.inf:
        return "shared memory", OK, f"{folder} has no limit"
    if free < machine.LITTLE_SHARED_MEMORY:
        return "shared memory", POOR, f"{int(free) >> 20} MiB free in {folder}. {machine.MORE_SHARED_MEMORY}"
    return "shared memory", OK, f"{int(free) >> 20} MiB free in {folder}"


def _open_files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = machine.attainable_limit()
    if most == math.inf:
        return "open files", OK, "unlimited"
    if most <= MIN_OPEN_FILES:
        return "open files", POOR, f"at most {most:.0f}; many actors need more: raise `ulimit -Hn`"
    return (
        "open files",
        OK,
        f"at most {most:.0f}" + (f"; init() raises it from {soft}" if soft < most else ""),
    )


def _nodes() -> Finding:
    try:
        found = nodes.nodes()
    except OSError as error:
        return "nodes", BAD, f"cannot list nodes: {error}"
    words = [f"{node.process} ({'private' if node.private else 'long-lived'})" for node in found]
    return "nodes", OK, ", ".join(words) or "none running"


def _libraries() -> Finding:
    installed = [name for name in _OPTIONAL if importlib.util.find_spec(name) is not None]
    return "libraries", OK, ", ".join(installed) or "no optional libraries installed"
