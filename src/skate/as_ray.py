"""Run Ray programs on Skate: after this module is imported, `import ray` imports Skate.

This applies to all submodules, in this process and in the workers of sessions started afterwards, even if Ray is
installed. `skate run script.py` does the same for an unchanged script, and `pytest -p skate.as_ray` for tests.

>>> import skate.as_ray
>>> import ray
>>> ray.ObjectRef is skate.ObjectRef
True
>>> skate.as_ray.uninstall()
"""

from __future__ import annotations

from skate._base import alias
from skate._base.alias import installed, uninstall
from skate._engine.registry import choose
from skate._version import __version__, ray_version

__all__ = ["install", "installed", "uninstall"]


def install() -> None:
    """Make `import ray` and its submodules import Skate in this process; a second call does nothing.

    If the environment selects the ray engine, libraries that only Ray has are imported from Ray.
    """
    alias.install()
    if choose(None, None)[0] == "ray":
        alias.real_ray()


def pytest_report_header() -> str:
    """Return a line for the header of a test run: this module is a pytest plugin."""
    return f"ray: Skate {__version__}, with the API of Ray {ray_version}"


install()
