"""Replaces `ray._version`: the version of Ray whose API this is."""

from __future__ import annotations

from skate._version import ray_version as version

commit = "skate"

__all__ = ["commit", "version"]
