"""Pictures of graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import skate
from skate.dag import InputNode, MultiOutputNode, plot

pytestmark = pytest.mark.usefixtures("session")


@skate.remote(num_cpus=0)
class Worker:
    def echo(self, x: int) -> int:
        return x

    @skate.method(num_returns=2)
    def pair(self, x: int) -> tuple[int, int]:
        return x, x + 1


def edges_of(text: str, arrow: str) -> set[tuple[int, int]]:
    pairs = [
        line.split(f" {arrow} ") for line in text.splitlines() if f" {arrow} " in line and "[" not in line
    ]
    return {(int(pair[0]), int(pair[1])) for pair in pairs if pair[0].strip().isdigit()}


def test_a_single_output_leads_back_to_the_caller() -> None:
    with InputNode() as value:
        graph = Worker.remote().echo.bind(value).experimental_compile()
    text = graph.visualize(format="ascii")
    assert edges_of(text, "--->") == {(0, 1), (1, 2)}
    assert '0 [label="Task 0  InputNode"]' in text
    assert "Method: echo" in text


def test_nodes_are_numbered_as_the_data_meets_them() -> None:
    a, b = Worker.remote(), Worker.remote()
    with InputNode() as value:
        first, second = a.pair.bind(value)
        graph = MultiOutputNode([b.echo.bind(first), b.echo.bind(second)]).experimental_compile()
    expected = {(0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)}
    assert edges_of(graph.visualize(format="ascii"), "--->") == expected


def test_the_source_of_a_picture_is_returned_and_written(tmp_path: Path) -> None:
    with InputNode() as value:
        node = Worker.remote().echo.bind(value.x)
        graph = node.experimental_compile()
    text = graph.visualize(str(tmp_path / "graph"), format="dot")
    assert edges_of(text, "->") == {(0, 1), (1, 2), (2, 3)}
    assert (tmp_path / "graph.dot").read_text() == text


def test_a_text_cannot_be_viewed() -> None:
    with InputNode() as value:
        graph = Worker.remote().echo.bind(value).experimental_compile()
    with pytest.raises(ValueError, match="cannot be viewed"):
        graph.visualize(format="ascii", view=True)


def test_any_graph_can_be_plotted(tmp_path: Path) -> None:
    @skate.remote
    def step(*args: int) -> int:
        return sum(args)

    first = step.options(name="first").bind()
    text = plot(step.bind(first, step.bind()), str(tmp_path / "graph.dot"))
    assert '"first" -> "step_1"' in text
    assert '"step" -> "step_1"' in text
    assert (tmp_path / "graph.dot").read_text() == text
