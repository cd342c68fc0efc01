"""Every example runs on every engine and prints what it promises."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
TOUR = EXAMPLES / "04_tour.py"
RAY_PROGRAM = EXAMPLES / "05_ray_program.py"
ENGINES = ("local", "inline")

# A line that each example but the tour prints when it worked.
PROOF = {
    "01_tasks.py": r"^primes: 2 3 5 7 11 13 17 19 23 29 31 37 41 43 47$",
    "02_actors.py": r"^page-3: 69a50f17, after 2 tries$",
    "03_objects.py": r"^2000 of 2000 rows found their twin$",
    "05_ray_program.py": r"^most common: \[\('is', 4\), \('the', 4\), \('and', 3\)\]$",
    "06_data.py": r"^left out: broken.py, UnicodeDecodeError$",
    "07_resume.py": r"^every row once: True$",
    "08_serve.py": r"^\d+ answers of version 2, 0 failures$",
    "09_language_model.py": r"skate llm chat out/model$",
    "10_tune.py": r"^\d+ epochs, of 384 without early stopping$",
    "11_finetune.py": r"^Norway: Oslo is the capital\.$",
    "12_dashboard.py": r"^1,600,028 tokens$",
}


# A model with random weights instead of the real one, which takes minutes to train; and less work to look at.
ARGUMENTS = {
    ("09_language_model.py", "local"): ["--model", "tiny", "--passes", "2"],
    ("12_dashboard.py", "local"): ["--seconds", "0.1"],
    ("12_dashboard.py", "inline"): ["--seconds", "0.1"],
}
# The long one runs once: fine-tuning, tuning and serving have tests of their own on every engine. Fine-tuning without
# workers uses no engine.
ONCE = {"09_language_model.py", "11_finetune.py"}
CASES = [
    (path, engine)
    for path in FILES
    for engine in ENGINES
    if path != TOUR and (engine == "local" or path.name not in ONCE)
]


# Programs, since the libraries that they import leave threads and files behind.
MAKE_MODEL = """
import pathlib, sys
from tests.llm.finetune.models import make_model
make_model(pathlib.Path(sys.argv[1]), max_position_embeddings=512)
"""
CHECK_COMMANDS = """
import runpy, sys
example = runpy.run_path(sys.argv[1])
lines = [line for line in example["TEXT"].read_text().splitlines() if line and not line.startswith("#")]
rows = [line.split(" -> ") for line in lines]
print(len(rows) - example["HELD_OUT"] - example["ASKED"], len(rows) - len({request for request, _ in rows}))
print([command for _, command in rows if not example["is_command"](command)])
wrong = ("", "ls", "skate", "skate job", "skate fly", "skate stop --softly", "skate stop\\nskate start")
print([text for text in wrong if example["is_command"](text)])
"""


def run_program(program: str, *arguments: str) -> str:
    """Run a program in a process of its own, and return what it printed."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, cwd=EXAMPLES.parent, capture_output=True, text=True, check=True, timeout=280
    ).stdout


def run(example: Path, folder: Path, engine: str) -> str:
    """Run an example in a folder, and return what it printed."""
    arguments = ARGUMENTS.get((example.name, engine), ())
    if "tiny" in arguments:
        run_program(MAKE_MODEL, str(folder / "tiny"))
    done = subprocess.run(
        [
            sys.executable,
            *(("-m", "skate.cli", "run") if example == RAY_PROGRAM else ()),
            str(example),
            *arguments,
        ],
        cwd=folder,
        env={**os.environ, "SKATE_ENGINE": engine, "COLUMNS": "110", "SKATE_TRAIN_CURVES": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{example.name} failed on {engine}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


# One trains a model four times on two workers and serves it, each with an import of torch.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("example", "engine"), CASES, ids=[f"{path.name}-{engine}" for path, engine in CASES]
)
def test_an_example_runs_and_prints_its_result(example: Path, engine: str, tmp_path: Path) -> None:
    printed = run(example, tmp_path, engine)
    assert re.search(PROOF[example.name], printed, flags=re.MULTILINE), printed


@pytest.mark.parametrize("engine", ENGINES)
def test_the_tour_measures_and_draws_the_timeline(engine: str, tmp_path: Path) -> None:
    printed = run(TOUR, tmp_path, engine)
    for what in ("a task, waiting for each", "an actor call, many at once", "get an array of 100 MB"):
        assert re.search(rf"{what} .*\d", printed), printed

    picture = (tmp_path / "out" / "timeline.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(picture[start : start + 4], "big") for start in (16, 20))
    assert width > 1000
    assert height > 200

    # Six rounds: eight blocks, one update and one read in each, and the model's constructor.
    bars = re.search(r"\((\d+) bars\)", " ".join(printed.split()))
    assert bars is not None
    assert int(bars[1]) == 6 * (8 + 1 + 1) + 1


@pytest.mark.timeout(300)  # it imports torch
def test_the_language_model_learns_64_commands_that_exist() -> None:
    printed = run_program(CHECK_COMMANDS, str(EXAMPLES / "09_language_model.py"))
    assert printed.splitlines() == ["64 0", "[]", "[]"]


def test_the_language_model_names_what_is_not_installed(tmp_path: Path) -> None:
    blocked = (
        "import runpy, sys; sys.modules['openai'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked, str(EXAMPLES / "09_language_model.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "This example needs openai: pip install 'skate[llm]' openai\n"


@pytest.mark.parametrize("example", FILES, ids=lambda path: path.name)
def test_an_example_says_what_it_shows_and_stands_in_the_list(example: Path) -> None:
    tree = ast.parse(example.read_text(encoding="utf-8"))
    assert "\n\n" in (ast.get_docstring(tree) or ""), "a first sentence, then what it shows"
    assert f"({example.name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


def test_examples_are_numbered_from_one_without_a_gap() -> None:
    assert FILES
    assert [int(path.name.partition("_")[0]) for path in FILES] == list(range(1, len(FILES) + 1))
