"""The documentation is correct: its programs run and print what the pages show, and its links resolve.

A page is one program, read from top to bottom in an interpreter of its own:

- a `python` block runs; with `title="name.py"` it is saved under that name instead;
- a `bash` block runs in the same folder;
- a `text` block right after one of them is what it prints, where a line `...` stands for any lines;
- a block after the comment `<!-- not run: why -->` is only read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
FRAMEWORKS = [
    GUIDE / "frameworks.md",
    GUIDE / "strategies.md",
    GUIDE / "third-party.md",
]  # they run with the tests of frameworks
PAGES = [ROOT / "README.md", *sorted(set(GUIDE.glob("*.md")) - set(FRAMEWORKS))]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```(?P<language>\w*)(?: +title=\"(?P<title>[^\"]+)\")?\s*$")
NOT_RUN = re.compile(r"^<!-- not run: .+ -->$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
END = "--- end of block on line {} ---"


@dataclass(frozen=True)
class Block:
    """One fenced block: what it holds and the lines of its two fences, counted from one."""

    language: str
    title: str | None
    text: str
    first: int
    last: int
    is_run: bool


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    blocks = []
    lines = text.splitlines()
    opening: tuple[int, re.Match[str]] | None = None
    is_run = True
    for number, line in enumerate(lines, 1):
        if opening is None:
            if fence := FENCE.match(line):
                opening = number, fence
            elif line.strip():
                is_run = not NOT_RUN.match(line)
        elif line == "```":
            first, fence = opening
            body = "\n".join(lines[first : number - 1]) + "\n"
            blocks.append(Block(fence["language"], fence["title"], body, first, number, is_run))
            opening, is_run = None, True
    assert opening is None, f"the block on line {opening[0]} is not closed" if opening else ""
    return blocks


def program_of(blocks: list[Block]) -> str:
    """Return the page as one program in which every line stands on the line it has in the page."""
    lines: dict[int, str] = {}
    for block in blocks:
        if not block.is_run or block.language not in {"python", "bash"}:
            continue
        if block.title:
            lines[block.first] = f"open({block.title!r}, 'w').write({block.text!r})"
        elif block.language == "bash":
            lines[block.first] = f"__import__('subprocess').run(['bash', '-euc', {block.text!r}], check=True)"
        else:
            lines.update(enumerate(block.text.splitlines(), block.first + 1))
        lines[block.last] = f"print({END.format(block.first)!r}, flush=True)"
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1)) + "\n"


def expected_output(blocks: list[Block]) -> dict[int, str]:
    """Return what blocks print according to the page, by the line on which a block starts."""
    return {
        code.first: shown.text
        for code, shown in pairwise(blocks)
        if code.is_run and code.language in {"python", "bash"} and shown.language == "text" and shown.is_run
    }


def printed(stdout: str) -> dict[int, str]:
    """Return what each block did print, by the line on which it starts."""
    parts = re.split("^" + re.escape(END).replace(r"\{\}", r"(\d+)") + "\n", stdout, flags=re.MULTILINE)
    return {int(line): text for text, line in zip(parts[::2], parts[1::2], strict=False)}


def matches(expected: str, actual: str) -> bool:
    """Compare line by line, where `...` stands for any text."""
    pattern = "".join(
        "(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + "[ \t]*\n"
        for line in expected.splitlines()
    )
    return re.fullmatch(pattern, actual) is not None


def run_page(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program of a page in a folder."""
    program = folder / f"{path.stem.replace('-', '_').lower()}_page.py"
    program.write_text(program_of(blocks_of(path.read_text(encoding="utf-8"))), encoding="utf-8")
    bin_folder = str(Path(sys.executable).parent)
    return subprocess.run(
        [sys.executable, program.name],
        cwd=folder,
        env={**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.timeout(300)  # a page has a dozen programs; some train models
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_programs_of_a_page_run_and_print_what_it_says(path: Path, tmp_path: Path) -> None:
    check_page(path, tmp_path)


def check_page(path: Path, tmp_path: Path) -> None:
    """See that the programs of a page run, and print what it says."""
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    done = run_page(path, tmp_path)
    assert done.returncode == 0, (
        f"{path.name} fails (line numbers are the page's):\n{done.stderr}\n{done.stdout}"
    )
    actual = printed(done.stdout)
    for line, expected in expected_output(blocks).items():
        assert matches(expected, actual[line]), (
            f"{path.name}:{line} says it prints\n{expected}\nbut it prints\n{actual[line]}"
        )


@pytest.mark.parametrize("path", [*PAGES, *FRAMEWORKS], ids=lambda path: path.stem)
def test_every_block_of_a_page_is_of_a_kind_that_is_understood(path: Path) -> None:
    languages = {block.language for block in blocks_of(path.read_text(encoding="utf-8"))}
    assert languages <= {"python", "bash", "text"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_links_of_a_document_lead_to_a_file(path: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(path.read_text(encoding="utf-8"))]
    local = [
        target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")
    ]
    assert [target for target in local if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("folder", ["guide", "reference", "adr"])
def test_an_index_links_every_page_beside_it(folder: str) -> None:
    index = ROOT / "docs" / folder / "index.md"
    linked = {match["target"] for match in LINK.finditer(index.read_text(encoding="utf-8"))}
    assert {path.name for path in index.parent.glob("*.md")} - {"index.md"} <= linked


def test_every_environment_variable_is_documented() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    variables = set(re.findall(r"\bSKATE_[A-Z_]+", source))
    assert variables
    assert {name for name in variables if name not in page} == set()


def test_the_readme_says_what_skate_is_to_ray() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "independent of the Ray project" in text
    assert "trademark" in text


PAGE = """\
# A page

```python
x = 1
print(x + 1)
```

```text
2
```

```python title="other.py"
print("saved")
```

```bash
python other.py
```

```text
saved
```

<!-- not run: it would fail -->
```python
raise SystemExit("never")
```

```python
assert x == {value}
```
"""


def test_a_page_is_run_in_order_and_its_output_told_apart(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(value=1))
    done = run_page(page, tmp_path)
    assert done.returncode == 0, done.stderr
    assert printed(done.stdout) == {3: "2\n", 12: "", 16: "saved\n", 29: ""}
    assert expected_output(blocks_of(page.read_text())) == {3: "2\n", 16: "saved\n"}


def test_a_failing_page_names_its_own_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.format(value=2))
    done = run_page(page, tmp_path)
    assert done.returncode != 0
    assert "line 30" in done.stderr
    assert "assert x == 2" in done.stderr


def test_output_is_compared_line_by_line_and_dots_stand_for_anything() -> None:
    assert matches("a\nb\n", "a\nb\n")
    assert not matches("a\nb\n", "a\n")
    assert not matches("a\n", "a\nb\n")
    assert matches("took ... s\n...\nend\n", "took 0.3 s\n1\n2\nend\n")
    assert not matches("took ... s\n", "took 0.3 min\n")


@pytest.mark.parametrize("page", ["architecture.md", "glossary.md"])
def test_a_page_about_the_code_names_modules_that_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    names = set(re.findall(r"`(skate(?:\.\w+)+)`", text)) | set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert len(names) > 20
    files = {name: name if "/" in name else "src/" + name.replace(".", "/") for name in names}
    assert (
        sorted(name for name, file in files.items() if not any(map(Path.exists, _forms(ROOT / file)))) == []
    )


def _forms(path: Path) -> list[Path]:
    return [path, path.with_name(path.name + ".py")]


def test_the_diagram_of_the_packages_is_what_the_imports_say() -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "package_diagram.py", "--check"], check=True)
