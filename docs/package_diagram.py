"""Draw the packages of Skate and the direction of their imports, as a Mermaid diagram in docs/architecture.md.

    python docs/package_diagram.py            # rewrite the diagram
    python docs/package_diagram.py --check    # exit with 1 if the page differs from the code

An arrow means "imports". Arrows that follow from others are left out: where A imports B and B imports C, no arrow leads
from A to C.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- package diagram: generated -->", "<!-- end of package diagram -->"

# Packages in the diagram, and what each holds. A module belongs to the longest prefix; other modules are the API.
PACKAGES = {
    "skate.cli": "command line",
    "skate.dashboard": "page in the browser",
    "skate.llm": "language models",
    "skate.serve": "serving",
    "skate.tune": "hyper-parameter search",
    "skate.train": "training",
    "skate.data": "datasets",
    "skate.air": "shared by the libraries",
    "skate.util": "pools, queues, state, metrics",
    "skate": "API: init, remote, get, actors",
    "skate._engine": "engine interface",
    "skate._engine.common": "shared by the engines",
    "skate._engine.inline": "one process",
    "skate._engine.local": "worker processes",
    "skate._engine.ray": "a Ray cluster",
    "skate._base": "ids, options, errors, serialization",
}
# Modules whose path is Ray's and whose place is another. The longest prefix counts.
PLACED = {
    "skate.air.integrations": "skate.tune",
    "skate.air.result": "skate.train",
    "skate.air.session": "skate.tune",
    "skate.autoscaler": "skate.util",
    "skate.dag": "skate.util",
    "skate.exceptions": "skate._base",
    "skate.experimental": "skate.util",
    "skate.job_submission": "skate.util",
    "skate.scripts": "skate.cli",
    "skate.serve.scripts": "skate.cli",
    "skate.tune.cli": "skate.cli",
    "skate.util._metrics_cells": "skate",
    "skate.util._metrics_export": "skate",
    "skate.util._metrics_store": "skate",
    "skate.util._session": "skate",
    "skate.util.check_serialize": "skate",
    "skate.util.metrics": "skate",
    "skate.util.node": "skate",
    "skate.util.placement_group": "skate",
    "skate.util.rpdb": "skate",
    "skate.util.scheduling_strategies": "skate",
    "skate.util.serialization": "skate",
    "skate.util.state": "skate",
    "skate.util.state.state_cli": "skate.cli",
    "skate.widgets": "skate.util",
}


def package_of(module: str) -> str:
    """Return the package of the diagram that a module belongs to."""
    while module not in PLACED and module not in PACKAGES:
        module = module.rpartition(".")[0]
    return PLACED.get(module, module)


def imports_of(path: Path) -> Iterator[str]:
    """Yield the modules of Skate that a file imports when it is loaded."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{each.name}" for each in names)


def edges() -> set[tuple[str, str]]:
    """Return (importer, imported) for the packages of the diagram."""
    found = set()
    for path in sorted((ROOT / "src" / "skate").rglob("*.py")):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        importer = package_of(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        targets = {package_of(name) for name in imports_of(path) if name.partition(".")[0] == "skate"}
        found |= {(importer, target) for target in targets if target != importer}
    return found


def reduced(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the arrows that do not follow from others; raise graphlib.CycleError if packages import in a circle."""
    below: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for importer, target in arrows:
        below[importer].add(target)
    reachable: dict[str, set[str]] = {}
    for package in TopologicalSorter(below).static_order():
        reachable[package] = below[package].union(*(reachable[target] for target in below[package]))
    return sorted(
        (importer, target)
        for importer, target in arrows
        if not any(target in reachable[other] for other in below[importer] - {target})
    )


def diagram() -> str:
    """Return the diagram, between its two markers."""
    ids = {package: package.replace(".", "_") for package in PACKAGES}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {ids[package]}["{package}<br/>{holds}"]' for package, holds in PACKAGES.items()]
    lines += [f"    {ids[importer]} --> {ids[target]}" for importer, target in reduced(edges())]
    return "\n".join([BEGIN, *lines, "```", END])


def main() -> None:
    """Rewrite the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    current = before + diagram() + rest.split(END)[1]
    if "--check" in sys.argv:
        sys.exit(0 if current == page else f"{PAGE} differs from the code: run `make docs`")
    PAGE.write_text(current, encoding="utf-8")


if __name__ == "__main__":
    main()
