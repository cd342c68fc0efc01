"""Mistakes in calls that start a session give the errors that the table of the core has."""

from __future__ import annotations

import pytest

import skate
from tests.misuse import core
from tests.misuse.support import Mistake, check, read_table

TABLE = read_table("core")


@pytest.mark.parametrize("mistake", list(core.without_a_session()), ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(mistake: Mistake) -> None:
    try:
        check(mistake, TABLE)
    finally:
        skate.shutdown()
