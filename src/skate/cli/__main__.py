"""Runs the command line: `python -m skate.cli` is `skate`."""

from __future__ import annotations

from skate.cli.program import main

if __name__ == "__main__":
    main()
