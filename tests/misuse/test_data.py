"""Mistakes in calls of datasets give the errors that the table has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import skate
from tests.conftest import LeakWatch
from tests.misuse import data
from tests.misuse.support import Mistake, check, read_table

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # some arguments are deprecated too

TABLE = read_table("data")
MISTAKES = list(data.in_a_session())


@pytest.fixture(scope="module")
def session(polars_is_running: None, leak_watch: LeakWatch) -> Iterator[None]:
    skate.init(num_cpus=2)
    leak_watch.session_is_shared = True
    yield
    skate.shutdown()
    leak_watch.session_is_shared = False


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.id)
def test_a_mistake_gives_a_clear_error(session: None, mistake: Mistake) -> None:
    check(mistake, TABLE)


def test_the_table_has_no_other_mistakes() -> None:
    assert set(TABLE) == {mistake.id for mistake in MISTAKES}
