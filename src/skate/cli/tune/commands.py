"""`skate tune`: experiments and their trials, read from the folders in which they are stored."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skate._base.suggestions import did_you_mean
from skate.cli import candidates
from skate.cli.output import TABLE, format_option, say, write_block, write_json
from skate.cli.tune.selection import Row, Selection, round_number, selection_options, write_rows

if TYPE_CHECKING:
    from skate.tune._experiment.reader import StoredExperiment
    from skate.tune.experiment import Trial

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def tune() -> None:
    """Inspect experiments of `skate.tune`.

    The commands read the folders of experiments, also while a program runs them. These folders must be trusted: parts
    of them are unpickled.
    """


def _objective_options(command: F) -> F:
    """Add `--metric` and `--mode`."""
    command = click.option(
        "--mode", type=click.Choice(["min", "max"]), help="The default is that of TuneConfig."
    )(command)
    return click.option(
        "--metric", help="The metric that compares trials. The default is that of TuneConfig."
    )(command)


@tune.command("list-trials")
@click.argument("path", shell_complete=candidates.files)
@selection_options
@format_option
def list_trials(path: str, format_: str, **selection: Any) -> None:
    """List the trials of an experiment.

    PATH is the folder of the experiment, or its URI. For example:

    skate tune list-trials PATH --filter 'loss < 0.5' --sort loss
    """
    rows = [_trial_row(trial) for trial in _read(path).trials]
    write_rows("trials", rows, _usual_columns(rows), Selection(**selection), format_)


@tune.command("list-experiments")
@click.argument("path", required=False, shell_complete=candidates.files)
@selection_options
@format_option
def list_experiments(path: str | None, format_: str, **selection: Any) -> None:
    """List the experiments in a folder.

    PATH is their `storage_path`, a folder or a URI; by default $SKATE_STORAGE_PATH or ~/skate_results.
    """
    from skate.tune import RunConfig
    from skate.tune._experiment.reader import find_experiments

    where = path or RunConfig().storage_path or "."
    try:
        found = list(find_experiments(where))
    except (OSError, ValueError, ImportError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.ClickException(f"Cannot list {where}: {reason}.") from error
    rows: list[Row] = [
        {
            "name": each.name,
            "total_trials": each.statuses.total(),
            "terminated": each.statuses["TERMINATED"],
            "errors": each.statuses["ERROR"],
            "last_updated": each.updated
            and datetime.datetime.fromtimestamp(each.updated).isoformat(" ", "seconds"),
            "running": each.process is not None,
            "pid": each.process,
            "path": each.path,
        }
        for each in found
    ]
    usual = ["name", "total_trials", "terminated", "errors", "running", "last_updated"]
    write_rows("experiments", rows, usual, Selection(**selection), format_)


@tune.command("add-note")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--filename", default="note.txt", show_default=True, help="The name of the file.")
def add_note(path: Path, filename: str) -> None:
    """Edit a text file in the folder of an experiment, with $VISUAL or $EDITOR."""
    file = path / filename
    existed = file.exists()
    click.edit(filename=str(file))
    if file.exists():
        say("Updated the note." if existed else "Created the note.")
        click.echo(str(file))
    else:
        say("No note was saved.")


@tune.command()
@click.argument("path", shell_complete=candidates.files)
@_objective_options
@format_option
def show(path: str, metric: str | None, mode: str | None, format_: str) -> None:
    """Summarize an experiment: its trials by status, and the best one.

    PATH is the folder of the experiment, or its URI.
    """
    from skate.tune import ExperimentAnalysis

    stored = _read(path)
    metric, mode = _objective(stored, metric, mode)
    statuses: dict[str, int] = {}
    for trial in stored.trials:
        statuses[trial.status] = statuses.get(trial.status, 0) + 1
    row: Row = {
        "name": stored.folder.name,
        "path": stored.folder.location,
        "pid": stored.process,
        "trials": len(stored.trials),
        **{status.lower(): number for status, number in sorted(statuses.items())},
        "metric": metric,
        "mode": mode,
    }
    if metric is not None and mode is not None:
        analysis = ExperimentAnalysis(stored.folder, trials=stored.trials)
        best = analysis.get_best_trial(metric, mode)
        _warn_of_unknown_metric(stored.trials, metric)
        row["best_trial"] = None if best is None else best.trial_id
        row["best_value"] = None if best is None else best.metric_analysis[metric]["last"]
        row["best_config"] = None if best is None else best.config
    else:
        say("The best trial is not shown: pass --metric and --mode.")
    if format_ != TABLE:
        write_json(row)
    else:
        write_block({name: round_number(value) for name, value in row.items()})


@tune.command()
@click.argument("path", shell_complete=candidates.files)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="The file to write. Default: the experiment's name with .html, in this folder.",
)
@_objective_options
def report(path: str, output: str | None, metric: str | None, mode: str | None) -> None:
    """Write plots and tables of an experiment as one HTML file.

    PATH is the folder of the experiment, or its URI. The page needs no network. The command needs Plotly and Optuna.
    """
    from skate.tune import ExperimentAnalysis, ResultGrid

    stored = _read(path)
    metric, mode = _objective(stored, metric, mode)
    if metric is None or mode is None:
        known = ", ".join(_reported_metrics(stored.trials)) or "none"
        raise click.ClickException(
            f"The experiment has no metric and mode: pass --metric and --mode. The trials reported {known}."
        )
    grid = ResultGrid(ExperimentAnalysis(stored.folder, trials=stored.trials))
    file = Path(output or f"{stored.folder.name}.html")
    try:
        made = grid.plot(metric, mode)
        made.save(file)
    except (ImportError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"Cannot write {file}: {error.strerror}.") from error
    say(str(made))
    click.echo(str(file))


for _short, _command in (("ls", list_trials), ("lsx", list_experiments)):
    _alias = click.Command(
        _short, callback=_command.callback, params=_command.params, help=_command.help, hidden=True
    )
    tune.add_command(_alias)


# ------------------------------------------------------------ reading


def _read(path: str) -> StoredExperiment:
    from skate.tune._experiment.reader import read_experiment

    try:
        return read_experiment(path)
    except (OSError, ValueError, ImportError) as error:
        raise click.ClickException(str(error)) from error


def _objective(
    stored: StoredExperiment, metric: str | None, mode: str | None
) -> tuple[str | None, str | None]:
    from skate.tune.result import DEFAULT_METRIC

    if metric is None or mode is None:
        default_metric, default_mode = stored.objective()
        metric, mode = metric or default_metric, mode or default_mode
    if metric is None and any(DEFAULT_METRIC in trial.metric_analysis for trial in stored.trials):
        metric = DEFAULT_METRIC
    return metric, mode


def _warn_of_unknown_metric(trials: Sequence[Trial], metric: str) -> None:
    if not any(metric in trial.metric_analysis for trial in trials):
        known = _reported_metrics(trials)
        say(
            f"No trial has reported {metric!r}, but {', '.join(known) or 'none'}.{did_you_mean(metric, known)}"
        )


def _reported_metrics(trials: Sequence[Trial]) -> list[str]:
    """Return the names of the metrics that trials have reported, without automatic ones."""
    from skate.tune.result import AUTO_RESULT_KEYS

    return sorted({name for trial in trials for name in trial.metric_analysis}.difference(AUTO_RESULT_KEYS))


def _trial_row(trial: Trial) -> Row:
    from skate.tune.experiment._metrics import flat

    result = {name: value for name, value in trial.last_result.items() if name not in ("config", "trial_id")}
    lines = [] if trial.error is None else str(trial.error).strip().splitlines()
    return {
        "trial_id": trial.trial_id,
        "name": str(trial),
        "status": trial.status,
        **dict(flat(result)),
        **dict(flat(trial.config, "config/")),
        "error": lines[-1] if lines else None,
        "logdir": trial.path,
    }


def _usual_columns(rows: Sequence[Row]) -> list[str]:
    """Return the columns of a table of trials: without those that are the same for all experiments, or long."""
    from skate.tune.result import AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, RESULT_DUPLICATE

    first = ["trial_id", "status", "training_iteration", "time_total_s"]
    last = ["error"] if any(row["error"] for row in rows) else []
    others = {*first, *AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, RESULT_DUPLICATE, "name", "error", "logdir"}
    found = dict.fromkeys(name for row in rows for name in row if name not in others)
    metrics = [name for name in found if not name.startswith("config/")]
    config = [name for name in found if name.startswith("config/")]
    return [*first, *metrics, *config, *last]
