"""The page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rag.app import NOTHING_FOUND, build_app
from rag.ingest import ingest

import skate
from skate import serve
from tests.browser import Page, open_browser
from tests.conftest import LeakWatch
from tests.llm.rag.conftest import write_documents
from tests.llm.rag.engine import config

pytest.importorskip("faiss")

ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>"
ENDED = "document.getElementById('times').textContent !== ''"


@pytest.fixture(scope="module")
def browser(leak_watch: LeakWatch) -> Iterator[str]:
    with open_browser() as address:
        yield address


@pytest.fixture(scope="module")
def url(
    browser: str, leak_watch: LeakWatch, tmp_path_factory: pytest.TempPathFactory, embeddings: str
) -> Iterator[str]:
    folder = write_documents(tmp_path_factory.mktemp("rag") / "documents")
    (folder / "poison.md").write_text(f"# Poison {ATTACK}\n\nThis is poison: {ATTACK} and {'x' * 500}\n")
    with skate.init(engine="inline"):  # which starts no processes
        ingest(folder, folder.parent / "store", embeddings=embeddings)
    with leak_watch.shared_session(num_cpus=2):
        serve.start(http_options={"port": 0})
        serve.run(build_app(folder.parent / "store", config()))
        host, port = serve.address()
        yield f"http://{host}:{port}"
        serve.shutdown()


@pytest.fixture
def page(browser: str, url: str) -> Iterator[Page]:
    made = Page(browser)
    made.open(url)
    yield made
    assert made.dialogs == []
    assert made.errors == []
    made.close()


def test_an_answer_streams_and_its_citations_lead_to_the_sources(page: Page, url: str) -> None:
    page.wait_for("document.getElementById('status').textContent.startsWith('4 documents')")
    page.type("#question", "gate arrays Large arrays are shared. Tasks read large arrays without copies.")
    page.wait_for("document.getElementById('answer').textContent.includes('arrays are')")
    assert "without copies" not in page.text("#answer")
    assert "arrays.md" in page.text("#sources")
    page.run("""fetch("ask", {method: "POST", headers: {"Content-Type": "application/json"},
        body: JSON.stringify({question: "open arrays"})}).then((answer) => answer.text())""")
    page.wait_for(ENDED)
    assert page.text("#answer").startswith("Large arrays are shared. 1")
    assert "lines 3–3" in page.text("#source-1")
    assert page.text("#source-1 .heading") == "Objects"
    page.run("document.querySelector('#answer a').click()")
    assert page.run("document.querySelector('#sources > li:target').id") == "source-1"


def test_html_in_documents_questions_and_answers_is_shown_as_text(page: Page) -> None:
    page.type("#question", f"say This is poison {ATTACK}")
    page.wait_for(ENDED)
    assert ATTACK in page.text("#answer")
    assert ATTACK in page.text("#asked")
    assert ATTACK in page.text("#source-1 .heading")
    page.run("document.querySelector('#source-1 details').open = true")
    assert ATTACK in page.text("#source-1 pre")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0


def test_nothing_found_is_shown_without_sources(page: Page) -> None:
    page.type("#question", "say Who won in 1903?")
    page.wait_for(ENDED)
    assert page.text("#answer") == NOTHING_FOUND
    assert page.run("document.getElementById('found').hidden")


def test_an_error_is_shown_and_the_next_question_works(page: Page) -> None:
    page.type("#question", "refuse arrays")
    page.wait_for("document.getElementById('answer').className === 'error'")
    assert "refused: arrays" in page.text("#answer")
    page.type("#question", "say Large arrays are shared.")
    page.wait_for(ENDED)
    assert page.text("#answer").startswith("Large arrays are shared.")


def test_a_new_question_replaces_one_that_is_being_answered(page: Page) -> None:
    page.type("#question", "hang arrays")
    page.wait_for("document.getElementById('progress').textContent.startsWith('Reading')")
    page.type("#question", "say Large arrays are shared.")
    page.wait_for(ENDED)
    assert page.text("#asked") == "say Large arrays are shared."
    assert page.text("#answer").startswith("Large arrays are shared.")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone_in_light_and_dark(browser: str, url: str, dark: bool, tmp_path: Path) -> None:
    page = Page(browser, width=390, dark=dark)
    page.open(url)
    page.type("#question", "say This is poison " + "x" * 300)
    page.wait_for(ENDED)
    page.run("document.querySelector('#source-1 details').open = true")
    assert page.run("document.documentElement.scrollWidth") <= 390
    back, front = page.run(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert contrast(back, front) > 7
    assert (luminance(back) < 0.1) == dark
    page.close()


def luminance(colour: str) -> float:
    """Return the relative luminance of a CSS colour such as `rgb(1, 2, 3)`."""
    parts = [int(part) / 255 for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
