"""Reads the examples of a documentation page: Sphinx doctest directives, in reStructuredText and in MyST Markdown.

`testcode` blocks are examples, and a `testoutput` after one is its expected output; `doctest` blocks hold both.
Blocks of `testsetup`, of `testcleanup`, and with the option `hide`, run with the others but are no examples:
readers do not see them.
"""

from __future__ import annotations

import doctest
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

DIRECTIVE = re.compile(
    r"^(?P<indent> *)\.\. (?P<kind>testcode|testoutput|testsetup|testcleanup|doctest)::(?P<argument>.*)$"
)
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|:{3,})\{(?P<kind>testcode|testoutput|testsetup|testcleanup|doctest)\}"
)
OPTION = re.compile(r"^ *:(?P<name>[a-z]+):(?P<value>.*)$")
INCLUDED_FILE = re.compile(
    r"(?:\.\. literalinclude::|\{literalinclude\})\s+(?P<path>\S+\.py)\s*$", re.MULTILINE
)

# Sphinx compares with these unless a page says otherwise. MOCK is a flag of Ray's documentation: the output is
# made up, and not compared.
DEFAULT_FLAGS = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1
MOCK = doctest.register_optionflag("MOCK")


@dataclass(frozen=True)
class Directive:
    """One directive of a page: its options, its lines without their indentation, and where it starts."""

    kind: str
    line: int
    options: dict[str, str]
    text: str

    @property
    def is_skipped(self) -> bool:
        """Whether the page says that the directive does not run."""
        condition = self.options.get("skipif")
        return condition is not None and bool(
            eval(condition, {})
        )  # a page is a program: Sphinx evaluates it too

    @property
    def flags(self) -> int:
        """The flags of doctest with which the output is compared."""
        flags = DEFAULT_FLAGS
        for option in self.options.get("options", "").replace(",", " ").split():
            flag = doctest.OPTIONFLAGS_BY_NAME[option[1:]]
            flags = flags | flag if option[0] == "+" else flags & ~flag
        return flags


@dataclass(frozen=True)
class Block:
    """A block of code of a page, numbered from one.

    Attributes:
        number: Its place among all blocks of the page.
        line: The line of the page where it starts.
        code: The statements.
        expected: What it prints; None if the page does not say, or says it only as an illustration.
        flags: The flags of doctest with which the output is compared.
        is_example: Whether readers see it.
        is_skipped: Whether the page says that it does not run.
        is_interactive: Whether values of expressions are printed, as at the prompt.
    """

    number: int
    line: int
    code: str
    expected: str | None = None
    flags: int = field(default=DEFAULT_FLAGS, repr=False)
    is_example: bool = True
    is_skipped: bool = False
    is_interactive: bool = False


def included_files(text: str) -> list[str]:
    """Return the paths of the Python files that a page includes, as the page writes them."""
    return [found["path"] for found in INCLUDED_FILE.finditer(text)]


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page in the order in which they run."""
    blocks: list[Block] = []
    setups: list[Block] = []
    cleanups: list[Block] = []
    is_answerable = False  # Whether a `testoutput` that follows belongs to the last block.
    for directive in directives_of(text):
        if directive.kind == "testoutput":
            if is_answerable and not directive.is_skipped and not directive.flags & (MOCK | doctest.SKIP):
                blocks[-1] = replace(blocks[-1], expected=directive.text, flags=directive.flags)
            is_answerable = False
            continue
        block = block_of(directive, len(blocks) + len(setups) + len(cleanups) + 1)
        {"testsetup": setups, "testcleanup": cleanups}.get(directive.kind, blocks).append(block)
        is_answerable = directive.kind == "testcode"
    return [*setups, *blocks, *cleanups]


def block_of(directive: Directive, number: int) -> Block:
    """Return the block of a directive that holds code."""
    code, expected = directive.text, None
    if directive.kind == "doctest":
        found = doctest.DocTestParser().get_examples(directive.text)
        parts = [part for part in found if not part.options.get(doctest.SKIP)]
        code = "".join(part.source for part in parts)
        expected = None if directive.flags & (MOCK | doctest.SKIP) else "".join(part.want for part in parts)
    return Block(
        number,
        directive.line,
        code,
        expected,
        directive.flags,
        is_example=directive.kind in ("testcode", "doctest") and "hide" not in directive.options,
        is_skipped=directive.is_skipped,
        is_interactive=directive.kind == "doctest",
    )


def directives_of(text: str) -> Iterator[Directive]:
    """Yield the doctest directives of a page, from top to bottom."""
    lines = text.expandtabs(8).splitlines()
    at = 0
    while at < len(lines):
        opening = DIRECTIVE.match(lines[at]) or FENCE.match(lines[at])
        start, at = at, at + 1
        if opening is None:
            continue
        fence = opening.groupdict().get("fence")
        if fence is None:
            indent = len(opening["indent"])
            while at < len(lines) and (not lines[at].strip() or indentation(lines[at]) > indent):
                at += 1
        else:
            while at < len(lines) and not lines[at].strip().startswith(fence):
                at += 1
        yield directive_of(opening["kind"], start + 1, lines[start + 1 : at])


def directive_of(kind: str, line: int, body: list[str]) -> Directive:
    """Return the directive with this body: options first, then what it holds."""
    options = {}
    at = 0
    while at < len(body) and (option := OPTION.match(body[at])):
        options[option["name"]] = option["value"].strip()
        at += 1
    text = textwrap.dedent("\n".join(body[at:])).strip("\n").rstrip()
    return Directive(kind, line, options, text + "\n")


def indentation(line: str) -> int:
    """Return the number of spaces before the text of a line."""
    return len(line) - len(line.lstrip())
