"""Mistakes in calls of Serve give the errors that the table has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skate import serve as skate_serve
from tests.misuse import serve
from tests.misuse.support import Mistake, check, read_table

TABLE = read_table("serve")
IN_A_SESSION = list(serve.in_a_session())


@pytest.fixture(scope="module")
def serving(session: None) -> Iterator[None]:
    serve.handle()
    yield
    skate_serve.shutdown()


@pytest.mark.parametrize("mistake", IN_A_SESSION, ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(serving: None, mistake: Mistake) -> None:
    check(mistake, TABLE)


def test_the_table_has_no_other_mistakes() -> None:
    assert set(TABLE) == {mistake.id for mistake in IN_A_SESSION}
