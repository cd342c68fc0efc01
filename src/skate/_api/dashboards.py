"""Dashboards of a session: the process that `init` starts, and the records with which others find the URL."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from skate._base.locations import IMPORT_ROOT

if TYPE_CHECKING:
    from skate._engine.abc import Engine

__all__ = [
    "DEFAULT_PORT",
    "TOKEN_VARIABLE",
    "fixed_token",
    "forget",
    "record",
    "require_packages",
    "start",
    "url_of",
]

DEFAULT_PORT: Final = 8265  # Ray's
TOKEN_VARIABLE: Final = "SKATE_DASHBOARD_TOKEN"
_FOLDER: Final = "dashboards"
_EXIT_TIMEOUT_S: Final = 5.0
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{16,256}")  # what RFC 6750 allows in a header
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from skate.dashboard._process import main; main()"
)

logger = logging.getLogger(__name__)


def record(session: str, url: str) -> None:
    """Record the dashboard of this process in the folder of a session, for its user only."""
    folder = os.path.join(session, _FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    draft = os.path.join(folder, f"{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump({"url": url, "pid": os.getpid()}, file)
    os.replace(draft, _path(session, os.getpid()))


def forget(session: str) -> None:
    """Remove the record of this process."""
    try:
        os.unlink(_path(session, os.getpid()))
    except FileNotFoundError:
        return  # the session is over


def _path(session: str, pid: int) -> str:
    return os.path.join(session, _FOLDER, f"{pid}.json")


def url_of(engine: Engine) -> str:
    """Return the URL of a running dashboard of a session, with its token; "" if there is none."""
    if engine.name == "ray":
        return str(engine.address_info.get("webui_url") or "")
    folder = os.path.join(engine.context().session, _FOLDER)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    for name in names:
        if not _is_running(int(name.removesuffix(".json"))):
            continue  # it was killed
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                return str(json.load(file)["url"])
        except FileNotFoundError:
            continue  # it has just ended
    return ""


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def require_packages() -> None:
    """Check that the packages of the dashboard are installed.

    Raises:
        ImportError: One is missing.
    """
    missing = [name for name in ("starlette", "uvicorn", "websockets") if find_spec(name) is None]
    if missing:
        raise ImportError(f"The dashboard needs {' and '.join(missing)}: pip install 'skate[dashboard]'")


def fixed_token() -> str | None:
    """Return the token that the environment sets, or None.

    Raises:
        ValueError: The token is too short to be secret, or has characters that a header cannot contain.
    """
    token = os.environ.get(TOKEN_VARIABLE)
    if not token:
        return None
    if not _TOKEN.fullmatch(token):
        # The value is a secret, and errors go to logs.
        raise ValueError(
            f"{TOKEN_VARIABLE} must have 16 to 256 letters, digits or characters of -._~+/=, and has {len(token)} "
            "characters; generate one with: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'"
        )
    return token


def start(engine: Engine, host: str, port: int | None) -> str:
    """Start a dashboard of a session in a child process, which ends with the session; return its URL.

    Args:
        engine: The engine of the session.
        host: The address to listen on.
        port: The first port to try; None for the default.

    Raises:
        ImportError: Packages of the dashboard are not installed.
        RuntimeError: The dashboard did not start.
        ValueError: The token in the environment cannot be used.
    """
    require_packages()
    fixed_token()  # checked here, so that an unusable token is an error of `init`
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, IMPORT_ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal is for the program
    )
    assert process.stdin is not None
    assert process.stdout is not None
    settings = {
        "address": engine.context().session,
        "host": host,
        "port": DEFAULT_PORT if port is None else port,
    }
    try:
        # The child ends when this pipe is closed, at the end of this process too.
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    except BaseException:
        _end(process)
        raise
    said = json.loads(line) if line else {"error": "The process of the dashboard ended; see its output."}
    if "error" in said:
        _end(process)
        raise RuntimeError(said["error"])
    engine.on_shutdown(lambda: _end(process))
    return str(said["url"])


def _end(process: subprocess.Popen[str]) -> None:
    """End the child, and wait for it."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            try:
                stream.close()
            except BrokenPipeError:
                continue  # it has ended
    try:
        process.wait(_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        logger.warning("The dashboard (pid %d) did not end, and is killed.", process.pid)
        process.kill()
        process.wait()
