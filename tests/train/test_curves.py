"""The picture of the curves of a run, and its TensorBoard events."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from skate import train
from skate.train import Checkpoint, Result, RunConfig
from skate.train._storage.run_folder import Storage
from skate.train._views.curves import collect, render
from skate.train._views.views import PICTURE, SWITCH, Views
from tests.train.test_tensorboard import events_in, scalars

pytestmark = pytest.mark.ray_more

Fit = Callable[..., Result]
PNG = b"\x89PNG\r\n\x1a\n"


def reports(values: dict[int, list[float]]) -> list[dict[str, Any]]:
    """Return a history in which ranks report losses in turn."""
    return [
        {"report": step, "rank": rank, "time": 0.0, "metrics": {"loss": value, "eval": {"loss": -value}}}
        for rank, losses in values.items()
        for step, value in enumerate(losses)
    ]


def size_of(png: bytes) -> tuple[int, int]:
    assert png[:8] == PNG
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_a_line_is_that_of_the_lowest_rank_or_of_each() -> None:
    history = reports({1: [3.0, 2.0], 0: [1.0, 0.5]})
    assert collect(history, ranks=False) == {
        "loss": {0: ([0, 1], [1.0, 0.5])},
        "eval/loss": {0: ([0, 1], [-1.0, -0.5])},
    }
    assert collect(history, ranks=True)["loss"] == {0: ([0, 1], [1.0, 0.5]), 1: ([0, 1], [3.0, 2.0])}


def test_a_report_that_was_made_again_counts_as_it_was_made_last() -> None:
    history = [*reports({0: [1.0, 0.5]}), {"report": 1, "rank": 0, "time": 0.0, "metrics": {"loss": 0.25}}]
    assert collect(history, ranks=False)["loss"] == {0: ([0, 1], [1.0, 0.25])}


def test_a_long_run_is_drawn_with_fewer_points_and_its_last_value() -> None:
    ((steps, values),) = collect(reports({0: [float(i) for i in range(9001)]}), ranks=False)["loss"].values()
    assert len(steps) <= 2000
    assert (steps[-1], values[-1]) == (9000, 9000.0)


def test_there_is_a_panel_for_each_metric() -> None:
    one = [{"report": i, "rank": 0, "time": 0.0, "metrics": {"loss": 1.0 / (i + 1)}} for i in range(5)]
    four = [{**each, "metrics": {f"m{n}": each["report"] for n in range(4)}} for each in one]
    small, large = render("run", one, [0], ranks=False), render("run", four, [0], ranks=False)
    assert small is not None
    assert large is not None
    (width, height), (wide, high) = size_of(small), size_of(large)
    assert wide == pytest.approx(3 * width, rel=0.01)
    assert high > 1.5 * height


def test_what_is_no_number_and_starts_are_drawn_too() -> None:
    history = reports({0: [1.0, math.nan, 0.5, math.inf] * 60, 1: [0.5] * 240})
    assert render("run", history, [0, 2, 100], ranks=True) is not None
    assert render("run", reports({0: [math.nan, math.nan]}), [0], ranks=False) is not None


def test_one_report_or_texts_are_no_curves() -> None:
    assert render("run", reports({0: [1.0]}), [0], ranks=False) is None
    texts = [{"report": i, "rank": 0, "time": 0.0, "metrics": {"note": "a"}} for i in range(3)]
    assert render("run", texts, [0], ranks=False) is None


def learn() -> None:
    rank = train.get_context().get_world_rank()
    for step in range(4):
        train.report({"loss": 1 / (step + 1 + rank), "note": "text"})


@pytest.mark.usefixtures("engine")
def test_a_run_leaves_its_curves_and_its_events(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    folder = Path(fit(learn).path)
    assert size_of((folder / PICTURE).read_bytes())[0] > 400
    _, *events = events_in(folder)
    assert [(event.step, scalars(event)) for event in events] == [
        (step, {"loss": pytest.approx(1 / (step + 1))}) for step in range(4)
    ]
    assert [each.name for each in folder.iterdir() if each.is_dir()] == []


@pytest.mark.usefixtures("engine")
def test_a_short_run_gets_no_picture_unless_it_is_asked_for(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr("skate.train._views.views._SHORT_RUN_S", 3600.0)
    folder = Path(fit(learn).path)
    assert not (folder / PICTURE).exists()
    assert len(events_in(folder)) == 5


@pytest.mark.usefixtures("engine")
def test_each_worker_has_its_events_when_they_are_asked_for(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "ranks")
    folder = Path(fit(learn).path)
    assert scalars(events_in(folder)[-1]) == {"loss": 0.25}
    assert scalars(events_in(folder / "rank_1")[-1]) == {"loss": pytest.approx(0.2)}


@pytest.mark.usefixtures("engine")
def test_a_run_that_starts_again_tells_where(
    fit: Fit, run_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_once() -> None:
        checkpoint = train.get_checkpoint()
        with tempfile.TemporaryDirectory() as folder:
            for step in range(2):
                train.report({"step": step}, checkpoint=Checkpoint(folder))
        if checkpoint is None:
            raise ValueError("once")

    monkeypatch.setenv(SWITCH, "1")
    result = fit(fails_once, 1, run=run_config(failures=1))
    record = Storage(str(Path(result.path).parent), "run").read()
    assert record is not None
    assert record.starts == [0, 2]
    events = [(event.step, event.session_log.status) for event in events_in(Path(result.path))]
    assert events == [
        (0, 0),
        (0, 0),
        (1, 0),
        (0, 0),
        (2, 1),
        (2, 0),
        (3, 0),
    ]  # from 2 on, what was before is dropped


def test_a_run_elsewhere_gets_them_too(
    fit: Fit, run_config: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    there = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    run = RunConfig(name="run", storage_path="bucket", storage_filesystem=there)
    assert fit(learn, 0, run=run).path == "bucket/run"
    assert (tmp_path / "bucket" / "run" / PICTURE).exists()
    assert len(events_in(tmp_path / "bucket" / "run")) == 5


def test_nothing_is_written_where_it_is_turned_off(fit: Fit) -> None:
    names = sorted(each.name for each in Path(fit(learn, 0).path).iterdir())
    assert names == ["metrics.jsonl", "run.json", "run.log"]


def test_events_are_those_of_rank_0_also_when_it_is_slow(tmp_path: Path) -> None:
    views = Views(Storage(str(tmp_path), "run"))
    for step in range(10):
        views.reported(1, step, {"loss": 2.0})
    views.reported(0, 0, {"loss": 1.0})
    views.reported(1, 10, {"loss": 2.0})
    views.reported(0, 1, {"loss": 0.5})
    views.close([0])
    assert [(event.step, scalars(event)) for event in events_in(tmp_path / "run")[1:]] == [
        (0, {"loss": 1.0}),
        (1, {"loss": 0.5}),
    ]


@pytest.mark.parametrize("reports", [3, 80])
def test_events_are_those_of_another_when_rank_0_does_not_report(tmp_path: Path, reports: int) -> None:
    views = Views(Storage(str(tmp_path), "run"))
    for step in range(reports):
        for rank in (2, 1):
            views.reported(rank, step, {"rank": rank})
    views.close([0])
    found = [(event.step, scalars(event)) for event in events_in(tmp_path / "run")[1:]]
    assert [step for step, _ in found] == list(range(reports))
    assert len({said["rank"] for _, said in found}) == 1


def test_what_cannot_be_written_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        "skate.train._views.views.log.warning", lambda text, *values, **_: said.append(text % values)
    )
    storage = Storage(str(tmp_path), "run")
    (tmp_path / "run").write_text("no folder")
    views = Views(storage)
    for step in range(3):
        views.reported(0, step, {"loss": 1.0})
    views.close([0])
    assert said == [
        "could not write the events for TensorBoard of the run: disabled from here on",
        "could not write the curves of the run: disabled from here on",
    ]
