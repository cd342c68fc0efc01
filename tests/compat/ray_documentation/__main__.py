"""Run the examples of Ray's documentation on Skate, and compare the outcomes with `reasons.toml`.

Nothing of Ray's text is kept here: pages and files are read from a checkout of Ray's sources.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.compat.ray_documentation.examples import FOLDERS, File, Page, find_examples
from tests.compat.ray_documentation.reasons import REASONS, read_reasons
from tests.compat.ray_documentation.report import faults, table
from tests.compat.ray_documentation.running import Outcome, run_example


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat.ray_documentation", description=__doc__)
    parser.add_argument(
        "--src", type=Path, required=True, help="a checkout of Ray's sources, with doc/source"
    )
    parser.add_argument("--area", choices=FOLDERS, help="run the examples of one area only")
    parser.add_argument(
        "--only", metavar="PATTERN", help="run pages and files whose path matches, like 'data/*'"
    )
    parser.add_argument(
        "--timeout", type=float, default=120, help="seconds for a block or a file (default: 120)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write the outcome of each example")
    options = parser.parse_args(arguments)
    if not (options.src / "doc" / "source").is_dir():
        parser.error(f"--src must name a checkout of Ray's sources (with doc/source); it is '{options.src}'")
    return options


def selected(options: argparse.Namespace) -> Iterator[Page | File]:
    """Yield the pages and files to run."""
    for area in [options.area] if options.area else FOLDERS:
        for example in find_examples(options.src.resolve(), area):
            if options.only is None or fnmatch.fnmatch(example.name, options.only):
                yield example


def main(arguments: list[str]) -> int:
    """Run the examples; return 1 if an outcome and the reasons do not agree."""
    options = parse_arguments(arguments)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the example ends, too
    reasons = read_reasons(REASONS.read_text())
    outcomes: list[Outcome] = []
    for example in selected(options):
        for outcome in run_example(example, options.timeout):
            outcomes.append(outcome)
            print(
                f"{outcome.seconds:6.1f} s  {outcome.id}: {outcome.state} {outcome.detail[:200]}", flush=True
            )
        if options.out:
            options.out.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    print(f"\n{table(outcomes, reasons)}\n")
    is_whole = options.area is None and options.only is None
    disagreements = list(faults(outcomes, reasons, is_whole=is_whole))
    print("\n".join(disagreements))
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
