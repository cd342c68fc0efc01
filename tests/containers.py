"""Commands in mount, pid and ipc namespaces of their own, as containers have them."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

_UNSHARE = ("unshare", "--mount", "--ipc")
_OWN_PIDS = ("--pid", "--fork", "--kill-child", "--mount-proc")


def command(*words: str, private: Path, own_pids: bool = True) -> list[str]:
    """Return a command that runs another one in a container, which shares all files but those in `private`.

    With `own_pids`, the processes of the container end when the command does, or `unshare` itself.
    """
    mount = 'mount -t tmpfs none "$1" && shift && exec "$@"'
    return [*_UNSHARE, *(_OWN_PIDS if own_pids else ()), "sh", "-c", mount, "sh", str(private), *words]


@functools.cache
def _refusal() -> str:
    if shutil.which("unshare") is None:
        return "there is no `unshare` command"
    folder = Path("/tmp")
    tried = subprocess.run(command("true", private=folder), capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"namespaces are not permitted: {tried.stderr.strip()}"


def require() -> None:
    """Skip the test where this process may not create namespaces."""
    if _refusal():
        pytest.skip(_refusal())
