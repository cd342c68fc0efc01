"""The run records of datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import skate
from skate.data import _execution
from skate.util import _session
from skate.util._run_records import RunRecord, read_run, read_runs

pytestmark = pytest.mark.usefixtures("where")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record runs of any length."""

    def record(*arguments: Any, **options: Any) -> RunRecord:
        return RunRecord(*arguments, **{**options, "keep_short": True})

    monkeypatch.setattr(_execution, "RunRecord", record)


def latest(where: str) -> dict[str, Any] | None:
    """Return the record of the latest run; None where there is none, which only the local engine may have."""
    folder = _session.session_folder()
    rows = [] if folder is None else read_runs(folder)
    assert bool(rows) is (where == "local")
    return None if folder is None else read_run(folder, rows[-1]["id"])


@pytest.mark.usefixtures("recorded")
def test_a_run_leaves_a_record(where: str) -> None:
    ds = skate.data.range(40, override_num_blocks=4).map(lambda row: row).sort("id")
    assert ds.take_all()[-1] == {"id": 39}
    found = latest(where)
    if found is not None:
        assert (found["kind"], found["status"], found["summary"]) == ("data", "FINISHED", "40 of 40 rows")
        assert found["name"] == "ReadRange->Map(<lambda>) → Sort"
        assert [(each["rows_in"], each["rows_out"]) for each in found["operators"]] == [(0, 40), (40, 40)]
        assert {each["state"] for each in found["operators"]} == {"finished"}


@pytest.mark.usefixtures("recorded")
def test_a_run_of_a_named_dataset_has_its_name(where: str) -> None:
    ds = skate.data.range(4)
    ds.set_name("numbers")
    ds.materialize()
    found = latest(where)
    assert found is None or found["name"] == "numbers"


@pytest.mark.usefixtures("recorded")
def test_a_run_that_fails_says_why_in_its_record(where: str) -> None:
    def fail(row: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        skate.data.range(4).map(fail).take_all()
    found = latest(where)
    if found is not None:
        assert found["status"] == "FAILED"
        assert "bad row" in found["error"]


@pytest.mark.usefixtures("recorded")
def test_a_run_whose_consumer_needs_no_more_has_finished(where: str) -> None:
    rows = skate.data.range(400, override_num_blocks=4).iter_rows()
    assert next(iter(rows)) == {"id": 0}
    del rows
    found = latest(where)
    assert found is None or found["status"] == "FINISHED"


@pytest.mark.usefixtures("recorded")
def test_a_write_counts_the_rows_that_it_has_written(where: str, tmp_path: Path) -> None:
    skate.data.range(40, override_num_blocks=4).write_parquet(str(tmp_path / "out"))
    found = latest(where)
    assert found is None or (found["rows"], found["total_rows"]) == (40, 40)


def test_a_short_run_leaves_no_record(where: str) -> None:
    folder = _session.session_folder()
    before = [] if folder is None else read_runs(folder)
    skate.data.range(4).take_all()
    assert folder is None or read_runs(folder) == before
