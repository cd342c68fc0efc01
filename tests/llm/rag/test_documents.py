"""Files become chunks with headings and lines."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rag.documents import Chunk, SkippedFile, find_files, parse, read_bytes


def chunks(text: str, suffix: str, size: int = 800) -> list[Chunk]:
    return parse(text.encode(), suffix, size).chunks


def test_markdown_has_the_path_of_headings_and_the_lines_of_a_chunk() -> None:
    text = (
        "# Data\n\nIntro.\n\n## Reading\n\nFiles.\nMore.\n\n```python\n# no heading\n```\n\n# Other\n\nEnd.\n"
    )
    assert chunks(text, ".md") == [
        Chunk("Data", 3, 3, "Intro."),
        Chunk("Data > Reading", 7, 12, "Files.\nMore.\n\n```python\n# no heading\n```"),
        Chunk("Other", 16, 16, "End."),
    ]
    assert parse(text.encode(), ".md").title == "Data"


def test_html_has_its_text_without_scripts_and_styles() -> None:
    page = """<!doctype html><title>A &amp; B</title><style>p {}</style>
<h1>Top</h1><p>One <b>two</b>
three.</p><script>alert("x")</script>
<h2>Sub</h2><ul><li>four<li>five</ul>"""
    document = parse(page.encode(), ".HTML")
    assert document.title == "A & B"
    assert document.chunks == [Chunk("Top", 2, 3, "One two three."), Chunk("Top > Sub", 4, 4, "four\n\nfive")]


def test_a_long_text_is_split_after_lines_and_then_after_words() -> None:
    text = "\n".join(f"line {number} of a long paragraph" for number in range(1, 101))
    made = chunks(text, ".txt", 200)
    assert all(len(chunk.text) <= 200 for chunk in made)
    assert "\n".join(chunk.text for chunk in made) == text
    assert made[0].first_line == 1
    assert made[-1].last_line == 100
    assert all(
        chunk.text.startswith(f"line {chunk.first_line} ") and f"line {chunk.last_line} " in chunk.text
        for chunk in made
    )

    one_line = "word " * 1000
    assert all(
        len(chunk.text) <= 200 and (chunk.first_line, chunk.last_line) == (1, 1)
        for chunk in chunks(one_line, ".txt", 200)
    )
    assert "".join(chunk.text for chunk in chunks("x" * 1001, ".txt", 200)) == "x" * 1001


@given(st.text(st.sampled_from("ab \n#`<>/h1p.&;é"), max_size=400), st.sampled_from([".md", ".txt", ".html"]))
def test_no_letter_of_a_text_is_lost_and_lines_are_in_the_file(text: str, suffix: str) -> None:
    try:
        made = chunks(text, suffix, 50)
    except SkippedFile:
        return
    last = text.count("\n") + 1
    assert all(1 <= chunk.first_line <= chunk.last_line <= last and chunk.text.strip() for chunk in made)
    if suffix == ".txt":
        assert re.sub(r"\s", "", "".join(chunk.text for chunk in made)) == re.sub(r"\s", "", text)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", b"%PDF", "PDF files are not supported"),
        ("a.png", b"\x89PNG", "the type '.png' is not supported"),
        ("Makefile", b"all:", "the name has no suffix"),
        ("a.txt", b"", "empty"),
        ("a.md", b" \n\t", "empty"),
        ("a.txt", b"MZ\x00\x01", "binary data"),
        ("a.txt", b"caf\xe9", "not UTF-8: byte 3 is 0xe9"),
        ("a.html", b"<script>x()</script>", "no text"),
        ("a.txt", b"x" * 1001, "0.0 MB, and the limit is 0.001 MB"),
    ],
)
def test_a_file_that_is_no_document_is_skipped_with_the_reason(
    name: str, data: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SkippedFile, match=re.escape(reason)):
        parse(read_bytes(path, 1000), path.suffix)


def test_hidden_files_and_pipes_are_not_found(tmp_path: Path) -> None:
    for name in ("b.md", "a/c.md", ".git/d.md", ".e.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in find_files(tmp_path)] == ["b.md", "a/c.md"]
