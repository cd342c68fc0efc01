"""The interpreters to run with, and the facts of the machine that the figures depend on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent.parent

# What goes into the environments of the others, `bench/.venv-<name>`.
_REQUIREMENTS = {"ray": "requirements.txt", "serving": "requirements-serving.txt"}


def say(text: str) -> None:
    """Tell the person at the terminal; standard output is for the table."""
    print(text, file=sys.stderr, flush=True)


def venv_python(name: str) -> str:
    """Return the interpreter of `bench/.venv-<name>`; build that venv if it is missing or outdated.

    Args:
        name: `ray` for Ray and most peers, `serving` for those that serve models.

    Raises:
        SystemExit: pip failed; its own message stands above.
    """
    venv = BENCH / f".venv-{name}"
    requirements = BENCH / _REQUIREMENTS[name]
    python = venv / "bin" / "python"
    numpy = f"numpy=={importlib.metadata.version('numpy')}"
    wanted = hashlib.sha256(f"{sys.version}\n{numpy}\n{requirements.read_text()}".encode()).hexdigest()
    stamp = venv / "complete"
    if stamp.exists() and stamp.read_text() == wanted:
        return str(python)
    say(f"building bench/{venv.name} from bench/{requirements.name} (a minute or two, once)")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [*pip, "-r", str(requirements), numpy],
    ):
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            raise SystemExit(
                f"{' '.join(command)} failed with status {status}; fix that, or name a ready\n"
                "interpreter (--ray-python, --peer-python, --serving-python), or pass --systems skate --no-peers"
            )
    # Written last: an interrupted build is done again.
    stamp.write_text(wanted)
    return str(python)


def compile_skate(python: str) -> None:
    """Compile Skate's modules, as pip has done with Ray's: nobody does that for an editable install."""
    code = "import compileall, os, skate; compileall.compile_dir(os.path.dirname(skate.__file__), quiet=2)"
    subprocess.run([python, "-c", code], check=True)


def versions(python: str, names: tuple[str, ...]) -> dict[str, str | None]:
    """Return the versions of Python and of the named packages that an interpreter has."""
    probe = (
        "import importlib.metadata as m, json, platform, sys\n"
        "def v(n):\n"
        "    try: return m.version(n)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({'python': platform.python_version()} | {n: v(n) for n in sys.argv[1:]}))"
    )
    done = subprocess.run([python, "-c", probe, *names], check=True, capture_output=True, text=True)
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the programs."""
    return {
        "system": platform.platform(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
