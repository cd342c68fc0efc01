"""HTML for notebooks."""

from skate.widgets.render import Template
from skate.widgets.util import make_table_html_repr

__all__ = ["Template", "make_table_html_repr"]
