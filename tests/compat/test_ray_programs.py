"""Plain Ray programs run unchanged with `skate run`, and print what they say they print.

A program in examples/ray speaks for itself:

- the part `Prints:` of its docstring is what it writes to standard output, to the letter;
- `# needs: core, data` names the parts of Ray that it uses;
- `# engines: local, for …` keeps it from the other engines, and says why.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAM_TIMEOUT_S = (
    280  # most take a few seconds; on a busy machine, importing torch in every worker takes minutes
)

ENGINES = ("local", "inline")
CORE = "core"
LIBRARIES = ("data", "train", "tune", "serve", "llm")


@dataclass(frozen=True)
class Program:
    """A Ray program, and what it says about itself."""

    path: Path
    source: str
    docstring: str

    @classmethod
    def read(cls, path: Path) -> Program:
        source = path.read_text(encoding="utf-8")
        return cls(path, source, ast.get_docstring(ast.parse(source)) or "")

    @property
    def prints(self) -> str:
        """What it writes to standard output."""
        _, heading, text = self.docstring.partition("\nPrints:\n\n")
        assert heading, f"the docstring of {self.path.name} has no part `Prints:`"
        return textwrap.dedent(text).rstrip("\n") + "\n"

    @property
    def needs(self) -> tuple[str, ...]:
        """The parts of Ray that it uses."""
        line = self._line("needs")
        assert line, f"{self.path.name} has no line `# needs: …`"
        return tuple(line.split(", "))

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that it can run on."""
        line = self._line("engines")
        if line is None:
            return ENGINES
        restriction = re.fullmatch(r"(\w+), for \w.+", line)
        assert restriction, f"{self.path.name}: `# engines: {line}` gives no reason; write `local, for …`"
        assert restriction[1] in ENGINES
        return (restriction[1],)

    def _line(self, what: str) -> str | None:
        found = re.search(rf"^# {what}: (.+)$", self.source, flags=re.MULTILINE)
        return found[1] if found else None


PROGRAMS = [Program.read(path) for path in sorted((EXAMPLES / "ray").glob("*.py"))]


def name_of(value: object) -> str:
    return value.path.name if isinstance(value, Program) else str(value)


def run(program: Program, engine: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as its user would."""
    return subprocess.run(
        [sys.executable, "-m", "skate.cli", "run", "--engine", engine, str(program.path)],
        cwd=folder,
        env={**os.environ, "SKATE_TRAIN_CURVES": "0"},  # they take longer than the training
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )


@pytest.mark.timeout(PROGRAM_TIMEOUT_S + 20)
@pytest.mark.parametrize(
    ("program", "engine"),
    [(program, engine) for program in PROGRAMS for engine in program.engines],
    ids=name_of,
)
def test_a_ray_program_prints_what_it_promises(program: Program, engine: str, tmp_path: Path) -> None:
    done = run(program, engine, tmp_path)
    assert done.returncode == 0, f"{program.path.name} failed on {engine}:\n{done.stdout}\n{done.stderr}"
    assert done.stdout == program.prints


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_says_what_it_shows_and_needs_and_stands_in_the_list(program: Program) -> None:
    assert re.match(r"\S.+\.\n\nShows \S", program.docstring), "a first sentence, then what it shows"
    assert program.prints.strip()
    assert program.engines

    used = set(
        re.findall(rf"^ *(?:import|from) ray\.({'|'.join(LIBRARIES)})\b", program.source, re.MULTILINE)
    )
    used |= set(re.findall(rf"\bray\.({'|'.join(LIBRARIES)})\.", program.source))
    used |= set(re.findall(rf"^ *from ray import ({'|'.join(LIBRARIES)})\b", program.source, re.MULTILINE))
    assert set(program.needs) == {CORE, *used}
    assert f"(ray/{program.path.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_knows_nothing_of_skate(program: Program) -> None:
    assert "skate" not in program.source.lower()


def test_programs_are_numbered_from_one_without_a_gap() -> None:
    assert PROGRAMS
    assert [int(program.path.name.partition("_")[0]) for program in PROGRAMS] == list(
        range(1, len(PROGRAMS) + 1)
    )
