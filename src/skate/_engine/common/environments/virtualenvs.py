"""Virtual environments for ``pip`` and ``uv``: the requested packages first, then the base environment's."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from skate._engine.common.environments.cache import Cache
from skate._engine.common.environments.commands import Deadline, run_command
from skate._engine.common.environments.folders import digest_entries, digest_file, digest_text, list_entries
from skate._engine.common.environments.variables import expand_variables

# Requirements can refer to files in the working directory by these names.
WORKING_DIR_VARIABLES = ("SKATE_RUNTIME_ENV_CREATE_WORKING_DIR", "RAY_RUNTIME_ENV_CREATE_WORKING_DIR")

_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)(?:\s*=\s*|\s+|(?=[^\s-]))(.+)")
_EDITABLE = re.compile(r"(?:-e|--editable)(?:\s*=\s*|\s+)(.+)")
_LINK_FILE = "_skate_base_environment.pth"
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[4])


def virtual_environment(
    tool: str,
    settings: Mapping[str, Any],
    cache: Cache,
    *,
    env: Mapping[str, str],
    working_dir: Path | None,
    deadline: Deadline,
) -> Path:
    """Return the folder of a virtual environment with the wanted packages; build it if necessary.

    Args:
        tool: The installer: ``pip`` or ``uv``.
        settings: The validated ``pip`` or ``uv`` field.
        cache: The cache of environments.
        env: Environment variables for the installer.
        working_dir: The job's files, which requirements may refer to.
        deadline: When to give up.

    Raises:
        RuntimeEnvSetupError: The packages cannot be installed; the error contains the installer's output.
    """
    folder = working_dir or Path.cwd()
    env = {name: value for name, value in env.items() if name not in ("PIP_USER", "PIP_TARGET", "PIP_PREFIX")}
    if working_dir is not None:
        env.update(dict.fromkeys(WORKING_DIR_VARIABLES, str(working_dir)))
    key = _key(tool, settings, folder, env)

    def build(place: Path) -> None:
        python = _create(place, env, deadline)
        requirements = place / "requirements.txt"
        requirements.write_text("\n".join(settings["packages"]) + "\n", encoding="utf-8")
        install = _install_with_pip if tool == "pip" else _install_with_uv
        install(python, requirements, settings, env, folder, deadline)

    return cache.get_or_build("virtualenvs", key, build, movable=False)


def python_of(environment: Path) -> Path:
    """Return the interpreter of a virtual environment."""
    return environment / "bin" / "python"


def base_directories() -> list[str]:
    """Return the directories of this interpreter's packages, and the directory of Skate itself."""
    found = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    return list(dict.fromkeys([*found, _PACKAGE_ROOT]))


def link_base_environment(site_packages: Path) -> None:
    """Make this interpreter's packages importable from another environment, after its own."""
    lines = [f"import site; site.addsitedir({path!r})" for path in base_directories()]
    (site_packages / _LINK_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _key(tool: str, settings: Mapping[str, Any], folder: Path, env: Mapping[str, str]) -> str:
    described = {
        "tool": tool,
        "settings": {name: value for name, value in settings.items() if name != "packages"},
        "packages": describe_requirements(settings["packages"], folder, env),
        "python": [sys.version, sys.prefix],
        "base": base_directories(),
        # The source of packages, and how they are built.
        "variables": {name: value for name, value in env.items() if name.startswith(("PIP_", "UV_"))},
    }
    return digest_text(json.dumps(described, sort_keys=True))


def _create(place: Path, env: Mapping[str, str], deadline: Deadline) -> Path:
    # Without pip, which takes seconds: the base environment has it.
    run_command(
        [sys.executable, "-m", "venv", "--without-pip", str(place)],
        what="Making a virtual environment",
        deadline=deadline,
        env=env,
    )
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link_base_environment(place / "lib" / version / "site-packages")
    return python_of(place)


def _install_with_pip(
    python: Path,
    requirements: Path,
    settings: Mapping[str, Any],
    env: Mapping[str, str],
    folder: Path,
    deadline: Deadline,
) -> None:
    _ensure_pip(python, settings.get("pip_version"), env, deadline)
    # Without a search for conflicts in the base environment, which takes seconds: `pip_check` asks for one, and nobody
    # reads what pip says of a successful installation.
    options = ["--no-input", "--no-warn-conflicts", *settings.get("pip_install_options", ())]
    _pip(python, ["install", *options, "-r", str(requirements)], env, folder, deadline)
    if settings.get("pip_check"):
        _pip(python, ["check"], env, folder, deadline)


def _install_with_uv(
    python: Path,
    requirements: Path,
    settings: Mapping[str, Any],
    env: Mapping[str, str],
    folder: Path,
    deadline: Deadline,
) -> None:
    uv = _find_uv(python, settings.get("uv_version"), env, deadline)
    target = ["--python", str(python)]
    options = settings.get("uv_pip_install_options", ())
    commands: list[tuple[str, Sequence[str]]] = [
        ("uv pip install", [uv, "pip", "install", *target, *options, "-r", str(requirements)])
    ]
    if settings.get("uv_check"):
        commands.append(("uv pip check", [uv, "pip", "check", *target]))
    for what, command in commands:
        run_command(command, what=what, deadline=deadline, env=env, cwd=folder)


def _find_uv(python: Path, version: str | None, env: Mapping[str, str], deadline: Deadline) -> str:
    search = os.pathsep.join([env.get("PATH", os.defpath), os.path.dirname(sys.executable)])
    found = shutil.which("uv", path=search)
    if found is not None and version is None:
        return found
    _ensure_pip(python, None, env, deadline)
    _pip(python, ["install", "--no-input", f"uv{version or ''}"], env, python.parent, deadline)
    return str(python.parent / "uv")


def _ensure_pip(python: Path, version: str | None, env: Mapping[str, str], deadline: Deadline) -> None:
    # The new environment can import everything that this interpreter can.
    if importlib.util.find_spec("pip") is None:
        run_command(
            [str(python), "-m", "ensurepip"],
            what="Installing pip, which the base environment lacks,",
            deadline=deadline,
            env=env,
        )
    if version is not None:
        _pip(python, ["install", "--no-input", f"pip{version}"], env, python.parent, deadline)


def _pip(
    python: Path, arguments: Sequence[str], env: Mapping[str, str], folder: Path, deadline: Deadline
) -> None:
    run_command(
        [str(python), "-m", "pip", "--disable-pip-version-check", *arguments],
        what=f"pip {arguments[0]}",
        deadline=deadline,
        env=env,
        cwd=folder,
    )


def describe_requirements(lines: Sequence[str], folder: Path, env: Mapping[str, str]) -> list[str]:
    """Return the requirements, each local file followed by a digest of its contents.

    Equal descriptions install the same packages, as far as can be known without an index.

    Args:
        lines: Lines as in a requirements file.
        folder: The base of relative paths.
        env: Variables for ``${NAME}``.
    """
    return list(_describe(lines, folder, env, set()))


def _describe(lines: Sequence[str], folder: Path, env: Mapping[str, str], seen: set[Path]) -> Iterator[str]:
    for raw in lines:
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        expanded = expand_variables({"line": line}, env)["line"]
        included = _INCLUDE.fullmatch(expanded)
        if included is None:
            yield line
            yield from _describe_local(expanded, folder)
            continue
        path = _resolve(included.group(1), folder)
        yield line.split()[0]
        if path in seen:
            continue
        seen.add(path)
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from _describe(text.splitlines(), path.parent, env, seen)
        else:
            yield f"missing: {path}"  # pip reports this better


def _describe_local(line: str, folder: Path) -> Iterator[str]:
    editable = _EDITABLE.fullmatch(line)
    target = editable.group(1) if editable else line
    _, separator, reference = target.partition(" @ ")
    target = (reference if separator else target).split(";")[0].strip()
    if target.startswith("file:"):
        target = unquote(urlsplit(target).path)
    elif "://" in target or not (
        os.sep in target or target.endswith((".whl", ".tar.gz", ".zip")) or target == "."
    ):
        return
    path = _resolve(re.sub(r"\[[^\]]*\]$", "", target), folder)
    if path.is_dir():
        yield digest_entries(list_entries(path))
    elif path.is_file():
        yield digest_file(path)


def _resolve(name: str, folder: Path) -> Path:
    return (folder / Path(name.strip().strip("'\"")).expanduser()).resolve()
