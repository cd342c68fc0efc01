"""Mistakes in calls of Train give the errors that the table has."""

from __future__ import annotations

import pytest

from skate.train._views.views import SWITCH
from tests.misuse import train
from tests.misuse.support import Mistake, check, read_table

pytestmark = pytest.mark.frameworks

TABLE = read_table("train")
IN_A_SESSION = list(train.in_a_session())


@pytest.fixture(autouse=True)
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")


@pytest.mark.parametrize("mistake", IN_A_SESSION, ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(session: None, mistake: Mistake) -> None:
    check(mistake, TABLE)


def test_the_table_has_no_other_mistakes() -> None:
    assert set(TABLE) == {mistake.id for mistake in IN_A_SESSION}
