"""The name `ray`, pointing at Skate: `skate.as_ray` is its public face."""

from __future__ import annotations

from skate._base.alias.switch import install, installed, real_ray, uninstall

__all__ = ["install", "installed", "real_ray", "uninstall"]
