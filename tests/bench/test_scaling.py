"""The scaling benchmark: its arithmetic, table and picture on made-up figures, and one real program."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import scaling  # noqa: E402


def row_named(name: str) -> scaling.ScalingRow:
    return next(row for row in scaling.ROWS if row.name == name)


FIGURES: scaling.Figures = {
    "tasks_async": {"skate": {1: [10.0, 30.0, 20.0], 4: [60.0]}, "ray": {1: [5.0], 4: [6.0]}},
    "one_actor": {"skate": {1: [0.01], 4: [0.02]}, "ray": {1: [1.0]}},
    "tasks_1ms": {"skate": {1: [90.0], 4: [80.0]}},
}


def test_the_table_shows_medians_and_how_many_times_better_than_ray_they_are() -> None:
    rows = [row_named(name) for name in FIGURES]
    text = scaling.table(FIGURES, {("one_actor", "ray", 4): "Boom"}, rows, [1, 4])
    assert "| tiny tasks, one driver | skate | 20.0 /s (4.0×) | 60.0 /s (10.0×) | 12× |" in text
    assert "| create an actor, NumPy imported | skate | 0.01 s (100.0×) | 0.02 s | 0.008 s |" in text
    assert "|  | ray | 1.00 s | failed |  |" in text
    assert "| tasks of 1 ms | skate | 90.0 % | 80.0 % | 92.0 % |" in text


def test_ideal_scaling_is_proportional_for_rates_and_everything_for_shares() -> None:
    assert scaling.ideal_scaling(row_named("tasks_async"), {2: 10.0, 8: 11.0}) == {2: 10.0, 8: 40.0}
    assert scaling.ideal_scaling(row_named("tasks_1ms"), {2: 70.0, 8: 60.0}) == {2: 100.0, 8: 100.0}
    assert scaling.ideal_scaling(row_named("one_actor"), {2: 1.0}) == {}


@pytest.mark.parametrize(
    ("most", "numbers"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])]
)
def test_the_numbers_of_cores_are_powers_of_two_and_all(most: int, numbers: list[int]) -> None:
    assert scaling.powers_of_two(most) == numbers


def test_every_row_is_a_function_of_its_program() -> None:
    for row in scaling.ROWS:
        text = (BENCH / "programs" / f"{row.program}.py").read_text()
        assert row.program == "idle_workers" or f"def {row.name}()" in text
        for peer in row.peers:
            assert f"def {row.name}()" in (BENCH / "programs" / f"peer_{peer}.py").read_text()


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    scaling.draw(FIGURES, list(scaling.ROWS), tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_a_real_row_is_measured_and_the_affinity_is_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling.launcher, "adopt_orphans", lambda: None)  # would change this process for good
    before = os.sched_getaffinity(0)
    options = ["--only", "one_actor", "--cores", "1", "--systems", "skate", "--out", str(tmp_path)]
    assert scaling.main([*options, "--seconds", "0.1"]) == 0
    assert os.sched_getaffinity(0) == before
    figures = json.loads((tmp_path / "scaling.json").read_text())["figures"]
    assert figures["one_actor"]["skate"]["1"][0] > 0
    assert "| create an actor, NumPy imported | skate |" in capsys.readouterr().out


def test_more_cores_than_there_are_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        scaling.main(["--cores", "100000", "--systems", "skate"])
    assert "--cores asks for 100000" in capsys.readouterr().err
