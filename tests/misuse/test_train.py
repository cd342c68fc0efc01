"""Mistakes in calls of Train give the errors that the table has."""

from __future__ import annotations

import pytest

from tests.misuse import train
from tests.misuse.support import Mistake, check, read_table
from tests.train.conftest import without_curves  # noqa: F401  # a fixture: it is used by its name

pytestmark = pytest.mark.frameworks

TABLE = read_table("train")
IN_A_SESSION = list(train.in_a_session())


@pytest.mark.parametrize("mistake", IN_A_SESSION, ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(session: None, mistake: Mistake) -> None:
    check(mistake, TABLE)


def test_the_table_has_no_other_mistakes() -> None:
    assert set(TABLE) == {mistake.id for mistake in IN_A_SESSION}
