"""Run Ray programs on Skate: importing this module lets `import ray` mean Skate.

It holds for every submodule, in this process and in the workers of sessions that start afterwards, also when
Ray is installed. `skate run script.py` does it for a script that stays as it is, and `pytest -p skate.as_ray`
for tests.

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
    """Let `import ray`, and every submodule of it, mean Skate in this process; again does nothing.

    Where the environment asks for the ray engine, libraries that Ray alone has are Ray's from now on.
    """
    alias.install()
    if choose(None, None)[0] == "ray":
        alias.real_ray()


def pytest_report_header() -> str:
    """Say in the header of a test run what is tested: this module is a plugin for pytest."""
    return f"ray: Skate {__version__}, with the API of Ray {ray_version}"


install()
