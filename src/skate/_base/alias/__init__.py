"""The name `ray` as an alias of Skate; `skate.as_ray` is its public interface."""

from __future__ import annotations

from skate._base.alias.switch import install, installed, real_ray, uninstall

__all__ = ["install", "installed", "real_ray", "uninstall"]
