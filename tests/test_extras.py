"""Parts of Skate without the packages they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import skate

# As if a package were not there, for all that is imported afterwards.
WITHOUT = """
import sys
from importlib.machinery import PathFinder

missing, find = sys.argv[1].split(","), PathFinder.find_spec

def find_others(name, path=None, target=None):
    return None if name.partition(".")[0] in missing else find(name, path, target)

PathFinder.find_spec = find_others
"""


def said(program: str, *, without: str) -> str:
    """Run a program in a process that lacks some packages; return the last line that it writes."""
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}\n{program}", without],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(skate.__file__).parents[1])},
        check=False,
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("module", "without", "advice"),
    [
        ("skate.data", "pyarrow", "skate.data needs pyarrow: pip install 'skate[data]'"),
        ("skate.data", "polars,pyarrow", "skate.data needs polars and pyarrow: pip install 'skate[data]'"),
        ("skate.data.llm", "pydantic", "skate.data.llm needs pydantic: pip install 'skate[llm]'"),
        ("skate.train", "pyarrow", "skate.train needs pyarrow: pip install 'skate[train]'"),
        ("skate.train.torch", "torch", "skate.train.torch needs torch: pip install 'skate[train]'"),
        ("skate.serve", "pydantic", "skate.serve needs pydantic: pip install 'skate[serve]'"),
    ],
)
def test_a_missing_package_is_told_with_the_extra_that_has_it(module: str, without: str, advice: str) -> None:
    assert said(f"import {module}", without=without) == f"ImportError: {advice}"


def test_a_dashboard_without_its_packages_names_the_extra() -> None:
    program = "from skate._api import dashboards; dashboards.require_packages()"
    advice = "The dashboard needs starlette and uvicorn: pip install 'skate[dashboard]'"
    assert said(program, without="starlette,uvicorn") == f"ImportError: {advice}"


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("skate", "numpy,polars,pyarrow,pydantic,starlette,torch"),
        ("skate.data", "pydantic,starlette,torch"),
        ("skate.data.llm", "aiohttp,starlette,torch"),
        ("skate.train", "polars,pydantic,starlette,torch"),
        ("skate.serve", "numpy,polars,pyarrow,torch"),
    ],
)
def test_no_part_needs_what_is_for_another(module: str, without: str) -> None:
    assert said(f"import {module}; print('imported')", without=without) == "imported"


def test_a_run_needs_pandas_only_for_its_frames(tmp_path: Path) -> None:
    program = f"""
from skate import train
from skate.train.data_parallel_trainer import DataParallelTrainer

result = DataParallelTrainer(
    lambda: train.report({{"loss": 0.5}}),
    scaling_config=train.ScalingConfig(num_workers=0),
    run_config=train.RunConfig(storage_path={str(tmp_path)!r}),
).fit()
assert result.metrics == {{"loss": 0.5}}
"""
    assert said(f"{program}print(result.metrics)", without="pandas") == "{'loss': 0.5}"
    advice = "Result.metrics_dataframe needs pandas: pip install pandas"
    assert said(f"{program}result.metrics_dataframe", without="pandas") == f"ImportError: {advice}"
