"""HTML templates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["Template"]

_FOLDER = Path(__file__).parent / "templates"


class Template:
    """HTML with placeholders.

    Args:
        file: The name of a file of `list_templates`.

    Raises:
        ValueError: There is no such file.

    Example:
        >>> print(Template("title_data.html.j2").render(title="Cluster", data="<p>4 CPUs</p>"))
        <div>
        <h3>Cluster</h3>
        <p>4 CPUs</p>
        </div>
        <BLANKLINE>
    """

    def __init__(self, file: str) -> None:
        path = _FOLDER / file
        if path not in self.list_templates():
            known = ", ".join(sorted(each.name for each in self.list_templates()))
            raise ValueError(f"There is no template {file!r}; there are {known}.")
        self.template = path.read_text(encoding="utf-8")

    def render(self, **kwargs: str | list[str] | None) -> str:
        """Return the HTML with a value in place of each ``{{ name }}``; a list stands for its joined entries."""
        rendered = self.template
        for key, value in kwargs.items():
            text = "".join(value) if isinstance(value, list) else value or ""
            rendered = rendered.replace("{{ " + key + " }}", text)
        return rendered

    @staticmethod
    def list_templates() -> Iterable[Path]:
        """Return the files of all templates."""
        return list(_FOLDER.glob("*.html.j2"))
