"""Progress, objects and errors in a notebook, which a real kernel runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.timeout(180)

# A program, because the client leaves sockets behind.
RUN = """
import json, sys
import nbclient, nbformat

cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, timeout=120, allow_errors=True, kernel_name="python3").execute()
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
"""
SETUP = """
import threading, time
import skate, skate.data
from skate import serve
from skate._api import progress
from skate._api.progress import display

skate.init(num_cpus=2)
asked = threading.Semaphore(0)

def wait_for_views(count):
    for _ in range(count):
        asked.acquire()

describe = display._Screen._describe
def counted(self):
    describe(self)
    asked.release()
display._Screen._describe = counted
"""
WORK = """
display.DELAY_S = display.INTERVAL_S = 0.01
done = 0
def view():
    return progress.View("work <1>", 3, bar=progress.Bar(done, 4, "steps"))
shown = progress.show(view{options})
wait_for_views(3)
done = 4
wait_for_views(3)
shown.close()
"""
FUNCTIONS = """
@skate.remote
def divide(x):
    return 10 / x  # a line of the cell

@skate.remote
class Counter:
    def add(self, x):
        return 1 + x  # a line of the actor

def invert(row):
    return {"a": 1 // row["id"]}  # a line of the function of a dataset
"""
CELLS = {
    "setup": SETUP,
    "kept": WORK.format(options=""),
    "removed": WORK.format(options=", keep=False"),
    "functions": FUNCTIONS,
    "task": "skate.get(divide.remote(0))",
    "actor": "skate.get(Counter.remote().add.remote('a'))",
    "dataset": "skate.data.range(3).map(invert).take_all()",
    "reference": "skate.put('<value>')",
    "handle": "serve.handle.DeploymentHandle('Model', 'app')",
    "rows": "skate.data.from_items([{'text': '<b>'}]).materialize()",
    "run": "skate.data.range(100).map(lambda row: time.sleep(0.002) or row).materialize().count()",
    "end": "skate.shutdown()",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    """Run the cells, and return the outputs of each."""
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(list(CELLS.values())),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(zip(CELLS, json.loads(done.stdout), strict=True))


def text_of(error: Any) -> str:
    assert error["output_type"] == "error"
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))


def test_the_cells_without_errors_ran(outputs: dict[str, list[Any]]) -> None:
    for name in set(CELLS) - {"task", "actor", "dataset"}:
        assert [each for each in outputs[name] if each["output_type"] == "error"] == [], name


def test_work_is_one_output_that_is_updated(outputs: dict[str, list[Any]]) -> None:
    (shown,) = outputs["kept"]
    assert shown["output_type"] == "display_data"
    assert '<progress value="1.0000" max="1">' in shown["data"]["text/html"]
    assert "work &lt;1&gt;" in shown["data"]["text/html"]
    assert shown["data"]["text/plain"] == "work <1>: 3s, 4 of 4 steps (100%)"


def test_a_notebook_does_not_keep_what_is_only_of_interest_while_it_runs(
    outputs: dict[str, list[Any]],
) -> None:
    (shown,) = outputs["removed"]
    assert shown["data"] == {"text/html": "", "text/plain": ""}


def test_a_dataset_ends_with_all_its_rows(outputs: dict[str, list[Any]]) -> None:
    shown, count = outputs["run"]
    assert "100 of 100 rows" in shown["data"]["text/plain"]
    assert count["data"]["text/plain"] == "100"


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("task", "return 10 / x  # a line of the cell"),
        ("actor", "return 1 + x  # a line of the actor"),
        ("dataset", 'return {"a": 1 // row["id"]}  # a line of the function of a dataset'),
    ],
)
def test_errors_show_the_line_of_the_cell(outputs: dict[str, list[Any]], cell: str, line: str) -> None:
    text = text_of(outputs[cell][-1])
    assert line in text
    assert f"----> 1 {CELLS[cell]}" in text


def test_objects_are_html(outputs: dict[str, list[Any]]) -> None:
    found = {name: outputs[name][-1]["data"]["text/html"] for name in ("reference", "handle", "rows")}
    assert "state: ready" in found["reference"]
    assert "deployment: Model" in found["handle"]
    assert "&lt;b&gt;" in found["rows"]
    assert "text<br>string" in found["rows"]
