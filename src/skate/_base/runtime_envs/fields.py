"""The fields of a runtime environment, and the engines that provide each."""

from __future__ import annotations

import functools

from skate._base.suggestions import did_you_mean

# Fields the local engine provides.
PROVIDED = frozenset(
    {
        "conda",
        "config",
        "env_vars",
        "excludes",
        "pip",
        "preload",
        "py_executable",
        "py_modules",
        "uv",
        "worker_process_setup_hook",
        "working_dir",
    }
)

# Fields that are valid, as in Ray, but that only a Ray cluster can provide, and their meaning.
RAY_ONLY = {
    "_nsight": "profiling with Nsight",
    "_rocprof_sys": "profiling with rocprof-sys",
    "container": "running in a container",
    "image_uri": "running in an image",
    "java_jars": "loading Java archives",
    "mpi": "starting workers with MPI",
}

# Parameters that are stored under another key.
RENAMED = {"nsight": "_nsight", "rocprof_sys": "_rocprof_sys"}

# Fields about the installation of Ray itself. They are kept and have no effect here.
CARRIED = frozenset({"_inject_current_ray", "_ray_commit", "_ray_release"})

KNOWN = PROVIDED | frozenset(RAY_ONLY) | CARRIED

# Each of these selects the Python of the worker, so only one can be given.
INSTALLERS = ("pip", "uv", "conda")

URI_SCHEMES = ("https", "s3", "gs", "azure", "abfss", "hdfs", "file", "gcs", "skate")
ARCHIVE_SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar.xz")
WHEEL_SUFFIX = ".whl"


def field_hint(name: str, known: frozenset[str] | tuple[str, ...]) -> str:
    """Return a hint that names the known field most like ``name``, or all of them."""
    public = _public(known)
    return did_you_mean(name, public).lstrip() or f"Known fields: {', '.join(public)}."


def _public(known: frozenset[str] | tuple[str, ...]) -> list[str]:
    return sorted(key for key in known if not key.startswith("_"))


def check_known(name: str) -> None:
    """Refuse a misspelled field, and warn once of a field that resembles no known one.

    Ray ignores a field without a plugin, and programs rely on that.

    Raises:
        ValueError: The name is unknown, and resembles a known one.
    """
    if name in KNOWN:
        return
    hint = did_you_mean(name, _public(KNOWN))
    if hint:
        raise ValueError(f"runtime_env has no field {name!r}.{hint}")
    _warn_of_unknown(name)


@functools.cache  # once per name: an environment is validated for each task that has it
def _warn_of_unknown(name: str) -> None:
    import logging

    logging.getLogger("skate").warning(
        "runtime_env has no field %r, and Skate ignores it; on the `ray` engine, a plugin may use it. %s",
        name,
        field_hint(name, KNOWN),
    )


def uri_scheme(text: str) -> str | None:
    """Return the scheme of a URI, or None for a plain path."""
    scheme, separator, _ = text.partition("://")
    return scheme if separator else None
