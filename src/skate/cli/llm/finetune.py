"""`skate llm finetune` and `skate llm check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skate.cli.llm.settings import parse_settings
from skate.cli.output import TABLE, format_option, say, write_block, write_json, write_row

if TYPE_CHECKING:
    from skate.llm import FinetuneConfig
    from skate.llm._finetune.check import CheckReport

F = TypeVar("F", bound=Callable[..., Any])


def _config_arguments(command: F) -> F:
    """Add the configuration file and `--set`."""
    command = click.option(
        "--set",
        "changes",
        metavar="KEY=VALUE",
        multiple=True,
        help="Replace a key of the file. The value is YAML. Repeatable.",
    )(command)
    return click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))(command)


@click.command()
@_config_arguments
@format_option
def finetune(config: Path, changes: tuple[str, ...], format_: str) -> None:
    """Fine-tune a language model, and write the trained model.

    CONFIG is a YAML file with axolotl's keys; LLaMA-Factory's names are also accepted. An unfinished run in its
    output_dir resumes. For example:

    skate llm finetune config.yaml --set learning_rate=1e-4
    """
    import skate.llm

    settings = _read(config, changes)
    try:
        result = skate.llm.finetune(settings)
    except (ValueError, ImportError) as error:
        raise click.ClickException(str(error)) from error
    row: dict[str, Any] = {
        "path": None if result.path is None else str(result.path),
        "best_loss": result.best_loss,
        **result.metrics,
        "seconds": {name: round(value, 2) for name, value in result.seconds.items()},
        "left_out": dict(result.dead_letters),
        "stopped_early": result.stopped_early,
    }
    write_row(row, format_)


@click.command()
@_config_arguments
@format_option
def check(config: Path, changes: tuple[str, ...], format_: str) -> None:
    """Check a configuration before fine-tuning with it.

    Shows three rows with their trained tokens, and checks that the stop token is trained, that packed rows do not
    attend to each other, and that the largest micro-batch fits in memory. Exits with status 1 if a check fails.
    """
    from skate.llm._finetune import check as checks

    settings = _read(config, changes)
    try:
        report = checks.check(settings)
    except (ValueError, ImportError, MemoryError) as error:
        raise click.ClickException(str(error)) from error
    except RuntimeError as error:  # torch raises a subclass when a GPU runs out of memory
        if "out of memory" not in str(error):
            raise
        raise click.ClickException(
            "the largest micro-batch does not fit in GPU memory: lower micro_batch_size or sequence_len, or set "
            "gradient_checkpointing: true."
        ) from error
    if format_ == TABLE:
        _show_rows(report)
        write_block(_summary(report))
    else:
        write_json(report.as_dict())
    if report.problems:
        raise click.ClickException(" ".join(report.problems))
    say(f"The configuration is valid. The check took {report.seconds:.1f} s.")


def _read(path: Path, changes: tuple[str, ...]) -> FinetuneConfig:
    from skate.llm import FinetuneConfig

    settings = parse_settings(changes, "--set")
    try:
        return FinetuneConfig.from_yaml(path, **settings)
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise click.ClickException(f"{path}: {error}") from error


def _show_rows(report: CheckReport) -> None:
    """Show rows. Trained tokens are bold green in a terminal, and in brackets elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for number, row in enumerate(report.rows, start=1):
        text = Text(f"Row {number}, trained tokens in ")
        text.append("green" if console.is_terminal else "[[ ]]", style="bold green")
        console.print(text)
        line = Text()
        for piece in row:
            shown = piece.text if console.is_terminal or not piece.trained else f"[[{piece.text}]]"
            line.append(shown, style="bold green" if piece.trained else "dim")
        console.print(line)
        console.print()


def _summary(report: CheckReport) -> dict[str, Any]:
    gigabytes = report.memory_bytes / 1e9
    row: dict[str, Any] = {
        "rows": f"{report.rows_kept} of {report.rows_read} are used",
        "left out": report.dead_letters or "none",
        "stop token": f"{report.stop_token}, trained in every row"
        if not report.problems
        else report.stop_token,
        "parameters": f"{report.parameters:,}, of which {report.trained_parameters:,} are trained",
    }
    if report.leak is not None and report.fill is not None:
        row["packing"] = f"{report.fill:.0%} filled; another row changes the loss by {report.leak:.1e}"
    row["largest micro-batch"] = f"{report.worst_tokens} tokens, loss {report.loss:.4f}, {gigabytes:.2f} GB"
    row["time"] = f"{report.step_seconds:.2f} s a step, {report.total_seconds:.0f} s for {report.steps} steps"
    return row
