"""The pages of the guide about frameworks and strategies: their programs run, and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import FRAMEWORKS, check_page

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


@pytest.mark.parametrize("path", FRAMEWORKS, ids=lambda path: path.stem)
def test_the_programs_of_a_page_run_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    check_page(path, tmp_path)
