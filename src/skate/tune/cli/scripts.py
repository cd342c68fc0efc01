"""The command line of Tune under Ray's path, from which Ray's `tune` command imports it.

`skate tune` is the same command. If `import ray` imports Skate, an installed `tune` command runs it too.
"""

from __future__ import annotations

from skate.cli.tune.commands import tune as cli

__all__ = ["cli"]
