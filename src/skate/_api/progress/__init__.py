"""The progress of long work: on a terminal, in a notebook, or in a log.

A library describes its work as a `View` and calls `show`. One thread per process asks for the views, and shows those of
work that takes longer than a second. `SKATE_PROGRESS=0` turns all of it off.
"""

from skate._api.progress.display import Shown, is_turned_on, is_wanted, show, shows_each_rank
from skate._api.progress.view import Bar, Column, Table, View, format_duration, format_number, format_rate

__all__ = [
    "Bar",
    "Column",
    "Shown",
    "Table",
    "View",
    "format_duration",
    "format_number",
    "format_rate",
    "is_turned_on",
    "is_wanted",
    "show",
    "shows_each_rank",
]
