"""Conda environments: an existing one by name or prefix, or one created from a specification."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skate._base.errors import RuntimeEnvSetupError
from skate._engine.common.environments.cache import Cache
from skate._engine.common.environments.commands import Deadline, run_command
from skate._engine.common.environments.folders import digest_text
from skate._engine.common.environments.virtualenvs import base_directories, link_base_environment

_PROBE = "import site, sys; print('%d.%d' % sys.version_info[:2]); print(site.getsitepackages()[0])"


def conda_environment(
    wanted: str | Mapping[str, Any], cache: Cache, *, env: Mapping[str, str], deadline: Deadline
) -> Path:
    """Return the folder of a conda environment; create it if its contents are given.

    Args:
        wanted: Name or prefix of an environment, or the contents of an environment file.
        cache: The cache for created environments.
        env: Environment variables for conda.
        deadline: When to give up.

    Raises:
        RuntimeEnvSetupError: conda or the environment does not exist, or it lacks Skate or has another Python.
    """
    conda = env.get("CONDA_EXE") or shutil.which("conda", path=env.get("PATH", os.defpath))
    if conda is None:
        raise RuntimeEnvSetupError(
            "runtime_env['conda'] needs conda, which is neither on the PATH nor named by CONDA_EXE. Install "
            "it, or use 'pip' or 'uv' instead."
        )
    if isinstance(wanted, str):
        prefix = _find(conda, wanted, env, deadline)
        _check_version(prefix, _probe(prefix, env, deadline)[0])
        run_command(
            [str(prefix / "bin" / "python"), "-c", "import skate"],
            what=f"Importing skate in the conda environment {wanted!r}, where it has to be installed,",
            deadline=deadline,
            env=env,
        )
        return prefix
    key = digest_text(json.dumps([wanted, sys.version, base_directories()], sort_keys=True))

    def build(place: Path) -> None:
        file = place.with_name(place.name + ".yml")
        try:
            # Every JSON text is a YAML text.
            file.write_text(json.dumps(_with_python(wanted)), encoding="utf-8")
            run_command(
                [conda, "env", "create", "--prefix", str(place), "--file", str(file)],
                what="conda env create",
                deadline=deadline,
                env=env,
            )
        finally:
            file.unlink(missing_ok=True)
        version, site_packages = _probe(place, env, deadline)
        _check_version(place, version)
        link_base_environment(Path(site_packages))

    return cache.get_or_build("conda", key, build, movable=False)


def _find(conda: str, wanted: str, env: Mapping[str, str], deadline: Deadline) -> Path:
    if os.path.isabs(wanted) and os.path.isdir(wanted):
        return Path(wanted)
    output = run_command([conda, "info", "--json"], what="conda info", deadline=deadline, env=env)
    try:
        info = json.loads(output[output.index("{") :])
    except ValueError as error:
        raise RuntimeEnvSetupError(f"conda info --json returned no JSON: {output}") from error
    if wanted == "base":
        return Path(info["root_prefix"])
    prefixes = [Path(prefix) for prefix in info.get("envs", ())]
    for prefix in prefixes:
        if prefix.name == wanted:
            return prefix
    raise RuntimeEnvSetupError(
        f"The conda environment {wanted!r} doesn't exist from the output of `conda info --json`. "
        f"There are: {', '.join(prefix.name for prefix in prefixes) or 'none'}."
    )


def _with_python(contents: Mapping[str, Any]) -> dict[str, Any]:
    # The worker must be able to unpickle what this interpreter pickles.
    dependencies = list(contents.get("dependencies", ()))
    if not any(isinstance(item, str) and item.split("=")[0].strip() == "python" for item in dependencies):
        dependencies.append(f"python={sys.version_info.major}.{sys.version_info.minor}")
    return {**contents, "dependencies": dependencies}


def _probe(prefix: Path, env: Mapping[str, str], deadline: Deadline) -> tuple[str, str]:
    output = run_command(
        [str(prefix / "bin" / "python"), "-c", _PROBE],
        what=f"Running Python in the conda environment {prefix}",
        deadline=deadline,
        env=env,
    )
    version, site_packages = output.strip().splitlines()[-2:]
    return version, site_packages


def _check_version(prefix: Path, version: str) -> None:
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if version != ours:
        raise RuntimeEnvSetupError(
            f"The conda environment {prefix} has Python {version}, but the program runs on {ours}. Objects "
            "are exchanged between the two, so they have to be the same."
        )
