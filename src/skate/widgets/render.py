"""HTML templates."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["Template"]

_FOLDER = Path(__file__).parent / "templates"


class Template:
    """An HTML template with placeholders.

    Args:
        file: Name of one of the files in `list_templates`.

    Raises:
        ValueError: The file does not exist.

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
            raise ValueError(f"Unknown template {file!r}; the templates are {known}.")
        self.template = path.read_text(encoding="utf-8")

    def render(self, **kwargs: str | list[str] | None) -> str:
        """Return the HTML with values in place of the ``{{ name }}`` placeholders; the entries of a list are joined."""
        rendered = self.template
        for key, value in kwargs.items():
            text = "".join(value) if isinstance(value, list) else value or ""
            rendered = rendered.replace("{{ " + key + " }}", text)
        return rendered

    @staticmethod
    def list_templates() -> Iterable[Path]:
        """Return the paths of all templates."""
        return list(_FOLDER.glob("*.html.j2"))
