"""A pytest plugin: the suites that the tests are divided into, selected with `--suite NAME`.

A suite is chosen by the folder of a test module, or by a mark of the module, which comes first:

- `frameworks`: needs packages that only `make frameworks` installs;
- `vllm`: needs vLLM, which only `make compat-vllm` installs, in an environment of its own;
- `ray`: runs on a Ray cluster too, in `make ray`;
- `ray_more`: runs on a Ray cluster too, in `make ray-more`.

Without `--suite` everything runs but the suites that need environments of their own: frameworks, vLLM, and clients of
language models. The marks are read from the text of a module, because importing it may need packages that are not
installed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# The suite of a folder. Other folders belong to the engines; modules without a folder are programs.
FOLDERS = {
    "chaos": "programs",
    "clients": "clients",
    "compat": "programs",
    "dashboard": "programs",
    "data": "data",
    "frameworks": "frameworks",
    "llm": "llm",
    "misuse": "programs",
    "serve": "serve",
    "train": "train",
    "tune": "train",
}
CHECKS = "test_architecture.py"  # `make check`
CORE = {"base", "contract", "engine"}
ON_RAY = ("contract", "engine/ray")
ON_PLATFORMS = ("contract", "engine/common", "engine/local")  # what a platform layer can change
NO_PLATFORM = "engine/local/state"  # the state machine uses none
SUITES = (
    "core",
    "portable",
    "engines",
    "programs",
    "data",
    "serve",
    "train",
    "llm",
    "vllm",
    "frameworks",
    "clients",
    "ray",
    "ray-more",
)
APART = ("frameworks", "vllm", "clients")  # suites in other environments, which a mark selects

_MARKS = re.compile(r"^pytestmark = .*", re.MULTILINE)
_MARK = re.compile(r"pytest\.mark\.(frameworks|vllm|ray_more|ray)\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite", choices=SUITES, help=f"run one suite (default: all but {', '.join(APART)})")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    suite = config.getoption("--suite")
    if suite in ("core", "portable") and collection_path.parent == TESTS and collection_path.is_dir():
        # What a folder shares, in its conftest.py, may need packages that the core does not have.
        return True if collection_path.name not in CORE else None
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if TESTS not in collection_path.parents:
        return None
    return None if _is_in(suite, collection_path.relative_to(TESTS), _marks(collection_path)) else True


def _marks(path: Path) -> set[str]:
    return set(_MARK.findall("".join(_MARKS.findall(path.read_text(encoding="utf-8")))))


def _is_in(suite: str | None, path: Path, marks: set[str]) -> bool:
    folder = path.parts[0] if len(path.parts) > 1 else ""
    apart = [each for each in APART if each in marks]
    own = apart[0] if apart else FOLDERS.get(folder, "engines" if folder else "programs")
    if suite is None:
        return own not in APART
    if suite == "core":
        return folder in CORE and not path.is_relative_to("engine/ray")
    if suite == "portable":
        return any(path.is_relative_to(each) for each in ON_PLATFORMS) and not path.is_relative_to(
            NO_PLATFORM
        )
    if suite == "ray":
        return "ray" in marks or any(path.is_relative_to(each) for each in ON_RAY)
    if suite == "ray-more":
        return "ray_more" in marks
    return own == suite and path.name != CHECKS
