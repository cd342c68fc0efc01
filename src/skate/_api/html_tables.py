"""HTML of objects in notebooks, for the libraries: see `skate._base.html_tables`."""

from skate._base.html_tables import facts_html, table_html, text_html

__all__ = ["facts_html", "table_html", "text_html"]
