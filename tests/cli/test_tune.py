"""`skate tune` reads experiments from their folders."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

import skate
from skate import tune
from skate.cli.tune.selection import parse_filter
from skate.tune._experiment.folder import OBJECTIVE, TUNER, ExperimentFolder
from skate.tune._experiment.recorder import Recorder
from skate.tune._workers.messages import Assignment, Report, WorkerSettings
from skate.tune._workers.trial_files import TrialFiles
from skate.tune.experiment import Trial
from tests.plugins.command_line import Cli


def train(config: dict[str, Any]) -> None:
    if config["x"] == 3:
        raise ValueError("three is too many")
    for step in range(1, 3):
        tune.report({"loss": config["x"] / step, "eval": {"accuracy": 0.5}})


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an experiment of four trials, of which one has failed."""
    folder = tmp_path_factory.mktemp("storage")
    skate.init(engine="inline")
    tune.Tuner(
        train,
        param_space={"x": tune.grid_search([4, 1, 3, 2]), "optimizer": {"name": "adam"}},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="first", storage_path=str(folder), verbose=0),
    ).fit()
    skate.shutdown()
    return folder


@pytest.fixture
def first(storage: Path) -> str:
    return str(storage / "first")


def listed(cli: Cli, *arguments: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(cli("tune", *arguments, "--format", "json").out)
    return rows


# ------------------------------------------------------------ trials


@pytest.mark.parametrize("command", ["list-trials", "ls"])
def test_trials_are_listed_as_a_table(cli: Cli, first: str, command: str) -> None:
    header, *rows = cli("tune", command, first).out.splitlines()
    assert header.split() == [
        "TRIAL_ID",
        "STATUS",
        "TRAINING_ITERATION",
        "TIME_TOTAL_S",
        "LOSS",
        "EVAL/ACCURACY",
        "CONFIG/X",
        "CONFIG/OPTIMIZER/NAME",
        "ERROR",
    ]
    assert [row.split()[1] for row in rows] == ["TERMINATED", "TERMINATED", "ERROR", "TERMINATED"]
    assert "three is too many" in rows[2]


def test_rows_are_filtered_sorted_and_limited(cli: Cli, first: str) -> None:
    ls = ("list-trials", first)
    assert [row["config/x"] for row in listed(cli, *ls, "--sort", "loss")] == [1, 2, 4, 3]
    assert [row["config/x"] for row in listed(cli, *ls, "--sort", "loss", "--desc")] == [4, 2, 1, 3]
    assert [row["config/x"] for row in listed(cli, *ls, "--sort", "status,loss", "--desc", "true")] == [
        4,
        2,
        1,
        3,
    ]
    assert [row["config/x"] for row in listed(cli, *ls, "--filter", "loss < 1.5")] == [1, 2]
    assert [row["config/x"] for row in listed(cli, *ls, "--filter", "status == error")] == [3]
    both = listed(cli, *ls, "--filter", "loss<=2", "--filter", "config/x != 1", "--limit", "1")
    assert [row["config/x"] for row in both] == [4]


def test_columns_are_chosen(cli: Cli, first: str) -> None:
    out = cli("tune", "ls", first, "--columns", "config/x, loss", "--sort", "loss").out
    assert [line.split() for line in out.splitlines()] == [
        ["CONFIG/X", "LOSS"],
        ["1", "0.5"],
        ["2", "1"],
        ["4", "2"],
        ["3", "-"],
    ]


def test_an_unknown_column_is_corrected(cli: Cli, first: str) -> None:
    for option in ("--sort", "--columns"):
        assert "Did you mean 'loss'?" in cli("tune", "ls", first, option, "los", status=1).err
    assert "Did you mean 'loss'?" in cli("tune", "ls", first, "--filter", "los < 1", status=1).err


def test_rows_are_saved(cli: Cli, first: str, tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.json", "rows.pkl"):
        done = cli(
            "tune", "ls", first, "--sort", "loss", "--columns", "loss,config/x", "-o", str(tmp_path / name)
        )
        assert done.err == f"Wrote 4 rows to {tmp_path / name}.\n"
        assert done.out.startswith("LOSS"), "the table is written as well"
    with open(tmp_path / "rows.csv", encoding="utf-8") as file:
        assert next(csv.DictReader(file)) == {"loss": "0.5", "config/x": "1"}
    assert json.loads((tmp_path / "rows.json").read_text())[0] == {"loss": 0.5, "config/x": 1}
    assert "must end with .csv" in cli("tune", "ls", first, "-o", "rows.xls", status=2).err


def test_nothing_found_is_said(cli: Cli, first: str) -> None:
    done = cli("tune", "ls", first, "--filter", "loss > 100")
    assert (done.out, done.err) == ("", "There are no trials that match.\n")


def test_a_filter_has_a_column_an_operator_and_a_value() -> None:
    assert parse_filter("eval/accuracy>=0.5") == ("eval/accuracy", ">=", "0.5")
    assert parse_filter("a = b c") == ("a", "=", "b c")
    for text in ("loss", "< 3", "loss <"):
        with pytest.raises(click.BadParameter, match="is not a filter"):
            parse_filter(text)


@pytest.mark.parametrize("command", ["list-trials", "show", "report"])
def test_a_folder_without_an_experiment_is_refused(
    cli: Cli, storage: Path, tmp_path: Path, command: str
) -> None:
    assert (
        "folder of an experiment: it has no journal.jsonl"
        in cli("tune", command, str(tmp_path), status=1).err
    )
    assert "is not a folder" in cli("tune", command, str(tmp_path / "none"), status=1).err
    assert "contains experiments: first" in cli("tune", command, str(storage), status=1).err


# ------------------------------------------------------------ experiments


@pytest.mark.parametrize("command", ["list-experiments", "lsx"])
def test_experiments_are_listed(
    cli: Cli, storage: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    header, row = cli("tune", command, str(storage)).out.splitlines()
    assert header.split() == ["NAME", "TOTAL_TRIALS", "TERMINATED", "ERRORS", "RUNNING", "LAST_UPDATED"]
    assert row.split()[:5] == ["first", "4", "3", "1", "False"]
    monkeypatch.setenv("SKATE_STORAGE_PATH", str(storage))
    (found,) = listed(cli, command)
    assert found["path"] == str(storage / "first")


def test_a_folder_without_experiments_is_no_error(cli: Cli, tmp_path: Path) -> None:
    assert cli("tune", "lsx", str(tmp_path)).err == "There are no experiments.\n"
    assert "Cannot list" in cli("tune", "lsx", str(tmp_path / "none"), status=1).err


def test_an_experiment_is_summarized(cli: Cli, first: str) -> None:
    row = json.loads(cli("tune", "show", first, "--format", "json").out)
    assert row["trials"] == 4
    assert (row["error"], row["terminated"]) == (1, 3)
    assert (row["metric"], row["mode"], row["best_value"]) == ("loss", "min", 0.5)
    assert row["best_config"]["x"] == 1
    worst = json.loads(cli("tune", "show", first, "--mode", "max", "--format", "json").out)
    assert worst["best_value"] == 2
    assert "best_value   0.5" in cli("tune", "show", first).out
    assert "No trial has reported 'los'" in cli("tune", "show", first, "--metric", "los").err


def test_the_summary_does_without_a_metric(cli: Cli, first: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    (copy / TUNER).write_bytes(b"needs a module of the program")
    assert "best_value   0.5" in cli("tune", "show", str(copy)).out  # nothing is unpickled
    (copy / OBJECTIVE).unlink()
    done = cli("tune", "show", str(copy))
    assert "pass --metric and --mode" in done.err
    assert "trials" in done.out
    error = cli("tune", "report", str(copy), status=1).err
    assert "pass --metric and --mode. The trials reported eval/accuracy, loss." in error


def test_a_note_is_edited(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "cp /etc/hostname")
    done = cli("tune", "add-note", str(tmp_path), "--filename", "remark.txt")
    assert (done.out, done.err) == (f"{tmp_path / 'remark.txt'}\n", "Created the note.\n")
    assert "Updated" in cli("tune", "add-note", str(tmp_path), "--filename", "remark.txt").err
    monkeypatch.setenv("EDITOR", "true")
    assert cli("tune", "add-note", str(tmp_path)).err == "No note was saved.\n"


def test_a_report_is_written(cli: Cli, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    done = cli("tune", "report", first)
    assert done.out == "first.html\n"
    assert "smallest loss" in done.err
    assert "figure-history" in Path("first.html").read_text(encoding="utf-8")
    assert "Cannot write" in cli("tune", "report", first, "-o", "none/x.html", status=1).err
    assert "Did you mean 'loss'?" in cli("tune", "report", first, "--metric", "los", status=1).err


# ------------------------------------------------------------ while it runs


def test_an_experiment_is_read_while_a_program_runs_it(cli: Cli, tmp_path: Path) -> None:
    folder = ExperimentFolder(tmp_path / "live")
    recorder = Recorder(folder)
    trials = [Trial("train", trial_id=name, config={"x": 1}) for name in ("ended", "reported", "waiting")]
    try:
        for trial in trials:
            folder.create_trial(trial)
            recorder.added(trial)
        for trial in trials[:2]:
            result = {"loss": 0.25, "training_iteration": 1}
            files = TrialFiles(
                Assignment(trial.trial_id, "train", "", trial.config, folder.trial_path(trial)),
                WorkerSettings("live"),
            )
            files.hold(Report(result))
            files.write(is_last=False)
            trial.update_last_result(result)
        trials[0].set_status(Trial.TERMINATED)
        recorder.ended(trials[0])
        recorder._journal.flush()
        path = str(folder.path)
        rows = listed(cli, "ls", path)
        assert [(row["status"], row.get("loss")) for row in rows] == [
            ("TERMINATED", 0.25),
            ("RUNNING", 0.25),
            ("PENDING", None),
        ]
        (found,) = listed(cli, "lsx", str(tmp_path))
        assert found["running"]
        assert "running      1" in cli("tune", "show", path, "--metric", "loss", "--mode", "min").out
        recorder.added(Trial("train", trial_id="later"))  # the journal can still be written
    finally:
        recorder.close()
    (found,) = listed(cli, "lsx", str(tmp_path))
    assert (found["running"], found["total_trials"]) == (False, 4)
    assert [row["status"] for row in listed(cli, "ls", str(folder.path))][1] == "PENDING"
