"""`skate microbenchmark`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from skate.cli import measurements
from skate.cli.measurements import Measurement
from skate.cli.output import JSON, TABLE, counted, say, write_json, write_table

RAY_TIMEOUT_S = 600.0


@click.command(
    epilog="\b\nRows:\n" + "\n".join(f"  {row.name:<12} {row.about}" for row in measurements.ROWS),
)
@click.option(
    "--only",
    "names",
    type=click.Choice([row.name for row in measurements.ROWS]),
    metavar="ROW",
    multiple=True,
    help="Measure only this row. Repeatable.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=0.8,
    show_default=True,
    help="The duration of a row.",
)
@click.option("--num-cpus", type=click.IntRange(min=1), help="CPUs of the session. Default: all.")
@click.option("--ray", "with_ray", is_flag=True, help="Measure Ray as well, if it is installed.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([TABLE, JSON]),
    default=TABLE,
    show_default=True,
    help="The output format.",
)
def microbenchmark(
    names: tuple[str, ...], seconds: float, num_cpus: int | None, with_ray: bool, format_: str
) -> None:
    """Measure the rates of tasks, actor calls and objects on this machine.

    Uses a session of its own. A rate is the median of five samples; the spread is half of their range.
    """
    if with_ray and find_spec("ray") is None:
        raise click.ClickException("--ray needs Ray: pip install ray")
    rows = measurements.available_rows(names)
    if not rows:
        raise click.ClickException(f"{' and '.join(names)} needs numpy: pip install numpy")
    if len(rows) < (len(set(names)) or len(measurements.ROWS)):
        say("The rows with large objects are left out, because they need numpy: pip install numpy")
    options: dict[str, Any] = {"names": [row.name for row in rows], "seconds": seconds, "num_cpus": num_cpus}
    found: list[Measurement] = []
    for each in measurements.run("skate", **options):
        found.append(each)
        say(f"{len(found)} of {counted(len(rows), 'row')}: {each.name}")
    on_ray = _measure_ray(options) if with_ray else {}
    if format_ == JSON:
        write_json([_describe(each, on_ray.get(each.name)) for each in found])
    else:
        _write(found, on_ray)


def _measure_ray(options: dict[str, Any]) -> dict[str, Measurement]:
    """Measure Ray in a separate process, without Skate's session."""
    say("Measuring Ray.")
    with tempfile.TemporaryDirectory(prefix="skate-microbenchmark-") as folder:
        file = Path(folder) / "measurements.json"
        # -P: a folder named ray in the working directory is not Ray.
        command = [sys.executable, "-P", "-m", measurements.__name__, "ray", json.dumps(options), str(file)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=RAY_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise click.ClickException(f"Ray was not measured within {RAY_TIMEOUT_S:g} seconds.") from error
        if done.returncode != 0 or not file.exists():
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise click.ClickException(f"Ray could not be measured (exit status {done.returncode}): {last}")
        return {each["name"]: Measurement(**each) for each in json.loads(file.read_text(encoding="utf-8"))}


def _describe(ours: Measurement, ray: Measurement | None) -> dict[str, Any]:
    row = asdict(ours)
    return row if ray is None else {**row, "ray": asdict(ray), "ratio": ours.rate / ray.rate}


def _write(found: list[Measurement], on_ray: dict[str, Measurement]) -> None:
    columns = ["row", "unit", "rate/s", "spread"]
    if on_ray:
        columns += ["ray/s", "spread", "ratio"]
    rows = []
    for ours in found:
        row = [ours.name, ours.unit, *_shown(ours)]
        if on_ray:
            ray = on_ray[ours.name]
            row += [*_shown(ray), f"{ours.rate / ray.rate:.2f}"]
        rows.append(row)
    write_table(columns, rows)


def _shown(measured: Measurement) -> tuple[str, str]:
    return _three_digits(measured.rate), f"± {_three_digits(measured.spread)}"


def _three_digits(number: float) -> str:
    """Return a number with three significant digits.

    >>> [_three_digits(number) for number in (123456.0, 12.345, 0.1234, 0.0)]
    ['123,000', '12.3', '0.123', '0']
    """
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
