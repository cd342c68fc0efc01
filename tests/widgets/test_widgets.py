from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import skate
from skate.widgets import Template, make_table_html_repr
from skate.widgets.util import in_ipython_shell, in_notebook, repr_with_fallback


def test_skate_has_the_package_as_an_attribute() -> None:
    assert skate.widgets.Template is Template  # type: ignore[attr-defined]


def test_a_template_joins_lists_and_leaves_nothing_for_none() -> None:
    rendered = Template("title_data.html.j2").render(title=None, data=["<p>", "</p>"])
    assert "<h3></h3>\n<p></p>" in rendered


def test_an_unknown_template_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"scrollableTable\.html\.j2"):
        Template("../util.py")


def test_a_table_shows_plain_and_nested_values_and_escapes_them() -> None:
    settings = SimpleNamespace(name="<b>", inner={"a&b": 1}, part=SimpleNamespace(deep=2), hidden=(1, 2))
    shown = make_table_html_repr(settings, title="T", max_height="10em")
    assert "<h3>T</h3>" in shown
    assert "max-height: 10em" in shown
    assert "<td>name</td><td>&lt;b&gt;</td>" in shown
    assert "<td>a&amp;b</td><td>1</td>" in shown
    assert "<td>deep</td><td>2</td>" in shown
    assert "hidden" not in shown


def _decorated(*packages: tuple[str, str | None]) -> Any:
    class Shown:
        @repr_with_fallback(*packages)
        def _repr_mimebundle_(self) -> dict[str, str]:
            return {"text/html": "<p>"}

        def __repr__(self) -> str:
            return "shown"

    return Shown()._repr_mimebundle_()


def test_rich_output_is_for_notebooks_that_have_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not in_notebook()
    assert _decorated() == {"text/plain": "shown"}

    class ZMQInteractiveShell:
        pass

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell))
    assert in_notebook()
    assert not in_ipython_shell()
    assert in_ipython_shell("TerminalInteractiveShell")
    assert _decorated(("json", None)) == {"text/html": "<p>"}
    assert _decorated(("no_such_package", "1")) == {"text/plain": "shown"}
