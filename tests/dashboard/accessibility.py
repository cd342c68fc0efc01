"""Accessibility of a page, checked with axe."""

from __future__ import annotations

from pathlib import Path

from tests.browser import Page

AXE = Path(__file__).parents[2] / "dashboard/node_modules/axe-core/axe.min.js"


def problems(page: Page) -> list[str]:
    """Return the serious violations of accessibility rules that axe finds."""
    if page.run("typeof axe") == "undefined":
        page.run(AXE.read_text(encoding="utf-8") + "; 0")
    found = page.run("""axe.run(document, {resultTypes: ["violations"]}).then((result) => result.violations
        .filter((each) => ["serious", "critical"].includes(each.impact))
        .map((each) => `${location.pathname}: ${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3)}`))""")
    assert isinstance(found, list)
    return found
