"""Read documents and split them into chunks that know their heading and their lines."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

MARKDOWN, HTML, TEXT = (".md", ".markdown"), (".html", ".htm"), (".txt", ".text", ".rst")
CHUNK_SIZE = 800  # characters: about 200 tokens, of which the sentence embeddings see 256
MAX_BYTES = 5_000_000
MAX_HEADING = 200  # characters

_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*$")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")


class SkippedFile(ValueError):
    """A file that is not ingested. The message is the reason."""


@dataclass(frozen=True)
class Chunk:
    """A piece of a document: text under one heading, with the numbers of its first and last line."""

    heading: str
    first_line: int
    last_line: int
    text: str


@dataclass(frozen=True)
class Document:
    """A file that was read: its title and its chunks."""

    title: str
    chunks: list[Chunk]


def find_files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, except hidden ones, in a fixed order."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():  # a pipe would block its reader
                yield path


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a document.

    Raises:
        SkippedFile: If its type is not supported, or it is too large or empty.
        OSError: If it cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix == ".pdf":
        raise SkippedFile("PDF files are not supported: convert them to text first")
    if suffix not in MARKDOWN + HTML + TEXT:
        raise SkippedFile(f"the type {suffix!r} is not supported" if suffix else "the name has no suffix")
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        size = path.stat().st_size
        raise SkippedFile(f"{size / 1e6:.1f} MB, and the limit is {max_bytes / 1e6:g} MB (--max-megabytes)")
    if not data.strip():
        raise SkippedFile("empty")
    return data


def content_hash(data: bytes, chunk_size: int) -> str:
    """Return a hash that changes with the content of a file and with the way it is split."""
    return hashlib.sha256(f"{chunk_size}\n".encode() + data).hexdigest()


def parse(data: bytes, suffix: str, chunk_size: int = CHUNK_SIZE) -> Document:
    """Split the content of a file into chunks.

    Raises:
        SkippedFile: If it is not text.
    """
    if b"\0" in data:
        raise SkippedFile("binary data, not text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkippedFile(f"not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    suffix = suffix.lower()
    if suffix in HTML:
        page = _Page()
        page.feed(text)
        page.close()
        title, blocks = page.title, page.blocks()
    elif suffix in MARKDOWN:
        blocks = list(_markdown_blocks(text))
        title = next((block.heading for block in blocks if block.heading), "").partition(" > ")[0]
    else:
        title, blocks = "", list(_paragraphs(text.split("\n"), 1, ""))
    chunks = list(_pack(blocks, chunk_size))
    if not chunks:
        raise SkippedFile("no text in it")
    return Document(title, chunks)


def _paragraphs(lines: Iterable[str], first: int, heading: str) -> Iterator[Chunk]:
    """Yield runs of lines that no blank line separates. `first` is the number of the first line."""
    run: list[str] = []
    number = first
    for number, line in enumerate(lines, first):
        if line.strip():
            run.append(line.rstrip())
        elif run:
            yield Chunk(heading, number - len(run), number - 1, "\n".join(run))
            run = []
    if run:
        yield Chunk(heading, number - len(run) + 1, number, "\n".join(run))


def _markdown_blocks(text: str) -> Iterator[Chunk]:
    """Yield paragraphs with the path of headings above them, such as "Data > Reading"."""
    path: list[tuple[int, str]] = []
    section: list[str] = []
    first, fence = 1, ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        heading = None if fence else _HEADING.match(line)
        if heading is None:
            section.append(line)
            continue
        yield from _paragraphs(section, first, " > ".join(name for _, name in path))
        level = len(heading[1])
        path = [*((above, name) for above, name in path if above < level), (level, heading[2][:MAX_HEADING])]
        section, first = [], number + 1
    yield from _paragraphs(section, first, " > ".join(name for _, name in path))


class _Page(HTMLParser):
    """Collects the text of an HTML page. Scripts and styles are left out."""

    _HIDDEN = frozenset(("script", "style", "template", "noscript", "svg"))
    _INLINE = frozenset(
        re.findall(r"\w+", "a abbr b cite code em i kbd mark q s small span strong sub sup u var")
    )
    _HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._blocks: list[Chunk] = []
        self._path: list[tuple[int, str]] = []
        self._parts: list[str] = []
        self._first = self._last = 1
        self._hidden = 0
        self._in = ""  # "title" or the heading that is open

    def blocks(self) -> list[Chunk]:
        """Return the blocks of text."""
        self._end_block()
        return self._blocks

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._HIDDEN:
            self._hidden += 1
        if tag not in self._INLINE:
            self._end_block()
        if tag == "title" or tag in self._HEADINGS:
            self._in = tag

    def handle_endtag(self, tag: str) -> None:
        if tag in self._HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if tag not in self._INLINE:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if self._hidden or not data.strip():
            if self._parts and not self._hidden:
                self._parts.append(" ")
            return
        line = self.getpos()[0]
        if not self._parts:
            self._first = line + data[: -len(data.lstrip())].count("\n")
        self._last = line + data.rstrip().count("\n")
        self._parts.append(data)

    def _end_block(self) -> None:
        text = " ".join("".join(self._parts).split())
        kind, self._in, self._parts = self._in, "", []
        if not text:
            return
        if kind == "title":
            self.title = text[:MAX_HEADING]
        elif kind:
            level = int(kind[1])
            self._path = [
                *((above, name) for above, name in self._path if above < level),
                (level, text[:MAX_HEADING]),
            ]
            self.title = self.title or text[:MAX_HEADING]
        else:
            heading = " > ".join(name for _, name in self._path)
            self._blocks.append(Chunk(heading, self._first, self._last, text))


def _pack(blocks: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """Join neighbouring blocks of a section up to a size, and split those that are longer."""
    open_: Chunk | None = None
    for block in blocks:
        for piece in _split(block, size):
            if open_ and open_.heading == piece.heading and len(open_.text) + len(piece.text) < size:
                text = f"{open_.text}\n\n{piece.text}"
                open_ = Chunk(piece.heading, open_.first_line, piece.last_line, text)
            else:
                if open_:
                    yield open_
                open_ = piece
    if open_:
        yield open_


def _split(block: Chunk, size: int) -> Iterator[Chunk]:
    """Split a long block after lines, and long lines after words."""
    if len(block.text) <= size:
        yield block
        return
    lines = block.text.split("\n")
    if len(lines) <= block.last_line - block.first_line:  # of HTML, whose lines have been joined
        for part in _cut(block.text, size):
            yield Chunk(block.heading, block.first_line, block.last_line, part)
        return
    run: list[str] = []
    first = last = block.first_line
    for number, line in enumerate(lines, block.first_line):
        for part in _cut(line, size):
            if run and sum(map(len, run)) + len(run) + len(part) > size:
                yield Chunk(block.heading, first, last, "\n".join(run))
                run = []
            if not run:
                first = number
            run.append(part)
            last = number
    yield Chunk(block.heading, first, last, "\n".join(run))


def _cut(line: str, size: int) -> Iterator[str]:
    start = 0
    while len(line) - start > size:
        end = line.rfind(" ", start + size // 2, start + size)
        end = start + size if end < 0 else end + 1
        yield line[start:end].rstrip()
        start = end
    yield line[start:]
