"""The command line of Serve under Ray's path, from which Ray's `serve` command imports it.

`skate serve` is the same command. If `import ray` imports Skate, an installed `serve` command runs it too.
"""

from __future__ import annotations

from skate.cli.serve.commands import build, config, controller_health, deploy, shutdown, start, status
from skate.cli.serve.commands import serve as cli
from skate.cli.serve.files import pairs as convert_args_to_dict
from skate.cli.serve.files import without_colours as remove_ansi_escape_sequences
from skate.cli.serve.run import run

__all__ = [
    "build",
    "cli",
    "config",
    "controller_health",
    "convert_args_to_dict",
    "deploy",
    "remove_ansi_escape_sequences",
    "run",
    "shutdown",
    "start",
    "status",
]
