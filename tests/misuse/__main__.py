"""Write the tables: ``python -m tests.misuse [AREA …]``; mistakes without a clear error are shown."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable

import skate
from tests.misuse.support import Mistake, comparable, fault_of, outcome, write_table

AREAS = ("core", "data", "train", "serve")


def outcomes(mistakes: Iterable[Mistake], *, session: bool) -> dict[str, str]:
    """Make mistakes one after another, show those whose error is not clear, and return the outcomes."""
    table: dict[str, str] = {}
    for mistake in mistakes:
        if session and not skate.is_initialized():
            skate.init(num_cpus=2)
        table[mistake.id] = text = comparable(outcome(mistake))
        if not session:
            skate.shutdown()
        fault = fault_of(mistake, text)
        if fault is not None:
            print(f"{mistake.id}: {fault}\n    {text[:400]}", flush=True)
    return table


def main(areas: list[str]) -> None:
    """Write the tables of some areas, or of all."""
    for area in areas or AREAS:
        module = importlib.import_module(f"tests.misuse.{area}")
        table = outcomes(module.in_a_session(), session=True)
        skate.shutdown()
        if hasattr(module, "without_a_session"):
            table |= outcomes(module.without_a_session(), session=False)
        write_table(area, table)
        print(f"{area}: {len(table)} mistakes")


if __name__ == "__main__":
    main(sys.argv[1:])
