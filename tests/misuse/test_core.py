"""Mistakes in calls of the core give the errors that the table has."""

from __future__ import annotations

import pytest

from tests.misuse import core
from tests.misuse.support import Mistake, check, read_table

TABLE = read_table("core")
IN_A_SESSION, WITHOUT = list(core.in_a_session()), list(core.without_a_session())


@pytest.mark.parametrize("mistake", IN_A_SESSION, ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(session: None, mistake: Mistake) -> None:
    check(mistake, TABLE)


def test_the_table_has_no_other_mistakes() -> None:
    assert set(TABLE) == {mistake.id for mistake in (*IN_A_SESSION, *WITHOUT)}
