"""HTML tables for notebooks, and detection of notebooks."""

from __future__ import annotations

import functools
import html
import importlib.util
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from skate.widgets.render import Template

__all__ = ["in_ipython_shell", "in_notebook", "make_table_html_repr", "repr_with_fallback"]

F = TypeVar("F", bound=Callable[..., Any])


def make_table_html_repr(obj: Any, title: str | None = None, max_height: str = "none") -> str:
    """Return the attributes of an object as an HTML table.

    Args:
        obj: The object. The table shows its plain values, dictionaries and objects with attributes.
        title: A heading.
        max_height: Height, in CSS, above which the table scrolls.

    Example:
        >>> class Cluster:
        ...     def __init__(self):
        ...         self.cpus = 4
        >>> "<td>cpus</td><td>4</td>" in make_table_html_repr(Cluster())
        True
    """
    rows = {}
    for key, value in vars(obj).items():
        if isinstance(value, (str, bool, int, float)):
            rows[key] = html.escape(str(value))
        elif isinstance(value, dict) or hasattr(value, "__dict__"):
            inner = value if isinstance(value, dict) else vars(value)
            rows[key] = _table({name: html.escape(str(item)) for name, item in inner.items()}, "none")
    table = _table(rows, max_height)
    if not title:
        return table
    return Template("title_data.html.j2").render(title=html.escape(title), data=table)


def _table(rows: dict[Any, str], max_height: str) -> str:
    """Return a table of names, which are escaped here, and HTML values."""
    cells = "".join(
        f"<tr><td>{html.escape(str(key))}</td><td>{value}</td></tr>" for key, value in rows.items()
    )
    table = f"<table><tr><th>Setting</th><th>Value</th></tr>{cells}</table>"
    return Template("scrollableTable.html.j2").render(table=table, max_height=max_height)


def repr_with_fallback(*notebook_deps: tuple[str, str | None]) -> Callable[[F], F]:
    """Decorate a `_repr_mimebundle_` to return plain text outside of notebooks and if packages are missing.

    Args:
        *notebook_deps: Required packages, each as a name and a version; the version is not checked.
    """
    is_rich = in_notebook() and all(importlib.util.find_spec(name) is not None for name, _ in notebook_deps)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def bundle(self: Any, *args: Any, **kwargs: Any) -> Any:
            return function(self, *args, **kwargs) if is_rich else {"text/plain": repr(self)}

        return bundle  # type: ignore[return-value]  # it has the signature of the function

    return decorate


def _is_shell(name: str, shell_name: str | None) -> bool:
    """Return whether a shell has a class of this name, or the class of this process a base of this name."""
    if shell_name or "IPython" not in sys.modules:
        return shell_name == name
    return name in [each.__name__ for each in type(sys.modules["IPython"].get_ipython()).__mro__]


def in_notebook(shell_name: str | None = None) -> bool:
    """Return whether this process runs a Jupyter notebook.

    Args:
        shell_name: Class name of the IPython shell; by default that of this process.
    """
    return _is_shell("ZMQInteractiveShell", shell_name)


def in_ipython_shell(shell_name: str | None = None) -> bool:
    """Return whether this process runs IPython in a terminal.

    Args:
        shell_name: Class name of the IPython shell; by default that of this process.
    """
    return _is_shell("TerminalInteractiveShell", shell_name)
