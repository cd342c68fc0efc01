"""Mistakes in calls of datasets give the errors that the table has."""

from __future__ import annotations

import pytest

from tests.misuse import data
from tests.misuse.support import Mistake, check, read_table

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # some arguments are deprecated too
    pytest.mark.usefixtures("polars_is_running"),  # before the session: its threads stay
]

TABLE = read_table("data")
MISTAKES = list(data.in_a_session())


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(session: None, mistake: Mistake) -> None:
    check(mistake, TABLE)


def test_the_table_has_no_other_mistakes() -> None:
    assert set(TABLE) == {mistake.id for mistake in MISTAKES}
