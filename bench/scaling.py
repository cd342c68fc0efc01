"""How Skate, Ray and others scale with the number of cores: one table, one picture.

    .venv/bin/python bench/scaling.py                                        # 1, 2, 4, … cores, Skate and Ray
    .venv/bin/python bench/scaling.py --cores 2 16 --only tasks_1ms actor_calls
    python3 bench/scaling.py --systems skate                                 # without Ray

Each figure comes from a process of its own, which sees that many cores only: they are set as its CPU affinity.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness import environment, launcher
from harness.environment import say
from harness.figures import show
from harness.launcher import Command, ProgramError


@dataclass(frozen=True, kw_only=True)
class ScalingRow:
    """Something to measure with different numbers of cores.

    Args:
        name: The name of the function in the program.
        title: What the table shows.
        program: The file in `programs/`.
        unit: `/s` and `GB/s` should grow with the cores; `% of cores` should be 100; `s` should not grow.
        peers: Others that can do the same.
        goal: What 16 cores should reach: a ratio to Ray, or a figure if `is_absolute`.
    """

    name: str
    title: str
    program: str
    unit: Literal["/s", "GB/s", "% of cores", "s", "MB", "KB", "% of a core"]
    peers: tuple[str, ...] = ()
    goal: float | None = None
    is_absolute: bool = False


IDLE_CPU, IDLE_MEMORY = "idle_cpu", "idle_memory"
ROWS = (
    ScalingRow(
        name="tasks_async",
        title="tiny tasks, one driver",
        program="tasks",
        unit="/s",
        peers=("mp", "dask"),
        goal=12,
    ),
    ScalingRow(
        name="tasks_submitters",
        title="tiny tasks, eight submitting actors",
        program="many_cores",
        unit="/s",
        goal=15,
    ),
    ScalingRow(
        name="tasks_1ms",
        title="tasks of 1 ms",
        program="many_cores",
        unit="% of cores",
        peers=("mp", "dask"),
        goal=92,
        is_absolute=True,
    ),
    ScalingRow(
        name="tasks_10ms",
        title="tasks of 10 ms",
        program="many_cores",
        unit="% of cores",
        peers=("mp", "dask"),
        goal=98,
        is_absolute=True,
    ),
    ScalingRow(
        name="actor_calls",
        title="actor calls, 8 callers to 8 actors",
        program="many_cores",
        unit="/s",
        goal=20,
    ),
    ScalingRow(
        name="one_actor",
        title="create an actor, NumPy imported",
        program="many_cores",
        unit="s",
        goal=0.008,
        is_absolute=True,
    ),
    ScalingRow(
        name="sixteen_actors",
        title="create 16 actors, NumPy imported",
        program="many_cores",
        unit="s",
        goal=25,
    ),
    ScalingRow(
        name="hundred_actors",
        title="create 100 actors, NumPy imported",
        program="many_cores",
        unit="s",
        goal=25,
    ),
    ScalingRow(
        name="put_from_8", title="put 100 MB from 8 actors", program="many_cores", unit="GB/s", goal=2
    ),
    ScalingRow(name="queued_tasks", title="memory of a queued task", program="many_cores", unit="KB"),
    ScalingRow(name="data_first", title="first dataset job, 10,000 rows", program="data_cores", unit="s"),
    ScalingRow(name="data_batches", title="map_batches over 2M rows, iterate", program="data", unit="s"),
    ScalingRow(name="data_map", title="map over 200,000 rows", program="data", unit="s"),
    ScalingRow(
        name="data_spin",
        title="map_batches, 20 ms for a batch",
        program="data_cores",
        unit="% of cores",
        goal=85,
        is_absolute=True,
    ),
    ScalingRow(
        name=IDLE_CPU, title="CPU time of an idle session", program="idle_workers", unit="% of a core"
    ),
    ScalingRow(name=IDLE_MEMORY, title="memory of an idle session", program="idle_workers", unit="MB"),
)
PEERS = {"mp": "multiprocessing", "dask": "Dask"}
Figures = dict[str, dict[str, dict[int, list[float]]]]  # by row, by system, by cores
Failures = dict[tuple[str, str, int], str]


class Measurement:
    """Runs rows on the systems that have an interpreter.

    Args:
        pythons: The interpreter of each system.
        seconds: How long to measure, after half as long to warm up.
        seen: CPUs that this process may use, the best ones first.
    """

    def __init__(self, pythons: dict[str, str], seconds: float, seen: list[int]) -> None:
        self._pythons = pythons
        self._seconds = seconds
        self._seen = seen
        self.figures: Figures = {}
        self.failures: Failures = {}

    def run(self, row: ScalingRow, cores: int) -> None:
        """Measure a row on every system that can run it."""
        for system, python in self._pythons.items():
            if (system in PEERS and system not in row.peers) or (row.name, system, cores) in self.failures:
                continue
            try:
                with _affinity(self._seen[:cores]):
                    value = self._take(row, system, python, cores)
            except ProgramError as error:
                self.failures[row.name, system, cores] = str(error)
                say(f"{row.name}, {system}, {cores} cores: {error}")
                continue
            self.figures.setdefault(row.name, {}).setdefault(system, {}).setdefault(cores, []).append(value)
            say(
                f"{row.name:18} {PEERS.get(system, system):16} {cores:3} cores  {show_figure(value, row.unit)}"
            )

    def _take(self, row: ScalingRow, system: str, python: str, cores: int) -> float:
        program = f"peer_{system}" if system in PEERS else row.program
        variables = {"SKATE_ENGINE": "local"} if system == "skate" else {}
        if row.program == "idle_workers":
            command = Command(
                python=python,
                program=program,
                arguments=(system, str(cores)),
                environment=variables,
                keep_path=True,
            )
            if row.name == IDLE_CPU:
                return launcher.idle_cpu_percent(command)
            return launcher.idle_megabytes(command)
        times = ("--warmup", f"{self._seconds / 2:g}", "--seconds", f"{self._seconds:g}")
        return launcher.figure(
            Command(
                python=python,
                program=program,
                arguments=(system, row.name, "--cpus", str(cores), *times),
                environment=variables,
                keep_path=True,
            )
        )


@contextlib.contextmanager
def _affinity(cpus: list[int]) -> Iterator[None]:
    """Let this process, and those it starts, use some CPUs only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpus_in_order() -> list[int]:
    """Return the CPUs of this process: one of each core first, then their siblings."""
    usable = sorted(os.sched_getaffinity(0))
    firsts, siblings, cores = [], [], set()
    for cpu in usable:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = path.read_text() if path.exists() else str(cpu)
        (siblings if core in cores else firsts).append(cpu)
        cores.add(core)
    return firsts + siblings


def powers_of_two(most: int) -> list[int]:
    """Return 1, 2, 4, … and the number itself."""
    return sorted({most, *(1 << shift for shift in range(most.bit_length()) if 1 << shift <= most)})


def show_figure(value: float, unit: str) -> str:
    """Return a figure with its unit."""
    if unit.startswith("% "):
        return f"{value:.1f} %"
    return show(value, unit)


def ratio_to_ray(row: ScalingRow, ours: float, rays: float) -> float:
    """Return how many times better a figure is than Ray's."""
    return rays / ours if row.unit in ("s", "MB", "KB", "% of a core") else ours / rays


def medians(figures: Figures, row: ScalingRow) -> dict[str, dict[int, float]]:
    """Return the medians of a row, by system and cores."""
    return {
        system: {cores: statistics.median(values) for cores, values in sorted(by_cores.items())}
        for system, by_cores in figures.get(row.name, {}).items()
    }


def table(figures: Figures, failures: Failures, rows: list[ScalingRow], cores: list[int]) -> str:
    """Return the table as Markdown: a line for each row and system, and the ratio to Ray in brackets."""
    lines = [
        "| | | " + " | ".join(f"{each} cores" if each > 1 else "1 core" for each in cores) + " | goal |",
        "|---" * (len(cores) + 3) + "|",
    ]
    for row in rows:
        found = medians(figures, row)
        for number, system in enumerate(found):
            texts = []
            for each in cores:
                value = found[system].get(each)
                if value is None:
                    texts.append("failed" if (row.name, system, each) in failures else "–")
                    continue
                text = show_figure(value, row.unit)
                rays = found.get("ray", {}).get(each)
                if system == "skate" and rays:
                    text += f" ({ratio_to_ray(row, value, rays):.1f}×)"
                texts.append(text)
            goal = ""
            if number == 0 and row.goal is not None:
                goal = show_figure(row.goal, row.unit) if row.is_absolute else f"{row.goal:g}×"
            title = f"{row.title}" if number == 0 else ""
            lines.append(f"| {title} | {PEERS.get(system, system)} | {' | '.join(texts)} | {goal} |")
    return "\n".join(lines)


def draw(figures: Figures, rows: list[ScalingRow], path: Path) -> None:
    """Draw each row over the number of cores, with ideal scaling as a dashed line.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = [row for row in rows if row.name in figures]
    columns = min(3, len(drawn))
    lines = -(-len(drawn) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.1 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    styles = {"skate": "#1a7f37", "ray": "#d1615d", "mp": "#777777", "dask": "#8ab4d8"}
    labels: dict[str, Any] = {}
    for number, row in enumerate(drawn):
        axes = figure.add_subplot(lines, columns, number + 1)
        found = medians(figures, row)
        for system, by_cores in found.items():
            (labels[PEERS.get(system, system.capitalize())],) = axes.plot(
                list(by_cores), list(by_cores.values()), marker="o", color=styles[system]
            )
        if ideal := ideal_scaling(row, found.get("skate", {})):
            (labels["ideal"],) = axes.plot(
                list(ideal), list(ideal.values()), linestyle="--", color="black", linewidth=1
            )
        ticks = sorted({cores for by_cores in found.values() for cores in by_cores})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(each) for each in ticks])
        if row.unit in ("/s", "GB/s"):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_title(row.title, fontsize=10)
        axes.set_ylabel(row.unit, fontsize=8)
        axes.grid(color="#dddddd")
    figure.supxlabel("cores", fontsize=9)
    figure.legend(labels.values(), labels, loc="outside upper center", ncols=len(labels), fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def ideal_scaling(row: ScalingRow, ours: dict[int, float]) -> dict[int, float]:
    """Return what each number of cores would reach if each core did as much as the first of Skate's."""
    if not ours or row.unit not in ("/s", "GB/s", "% of cores"):
        return {}
    if row.unit == "% of cores":
        return dict.fromkeys(ours, 100.0)
    fewest = min(ours)
    return {cores: ours[fewest] * cores / fewest for cores in ours}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write and draw; return 1 if a program failed on Skate."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", metavar="ROW", choices=[row.name for row in ROWS])
    parser.add_argument("--cores", type=int, nargs="+", help="default: 1, 2, 4, … up to those of the machine")
    parser.add_argument("--systems", nargs="+", choices=("skate", "ray", *PEERS), default=["skate", "ray"])
    parser.add_argument("--rounds", type=int, default=1, help="how often to measure each figure (1)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure a rate (2)")
    parser.add_argument(
        "--ray-python", help="interpreter that has Ray and Dask (bench/.venv-ray, built when missing)"
    )
    parser.add_argument("--out", type=Path, default=environment.BENCH / "out")
    options = parser.parse_args(arguments)
    seen = cpus_in_order()
    cores = options.cores or powers_of_two(len(seen))
    if max(cores) > len(seen):
        parser.error(f"this process may use {len(seen)} cores; --cores asks for {max(cores)}")
    rows = [row for row in ROWS if options.only is None or row.name in options.only]
    pythons = {"skate": sys.executable, "mp": sys.executable}
    if {"ray", "dask"} & set(options.systems):
        pythons["ray"] = pythons["dask"] = options.ray_python or environment.venv_python("ray")
    measurement = Measurement({each: pythons[each] for each in options.systems}, options.seconds, seen)
    launcher.adopt_orphans()
    if "skate" in options.systems:
        environment.compile_skate(sys.executable)
    with contextlib.suppress(KeyboardInterrupt):
        for _ in range(options.rounds):
            for row in rows:
                for each in cores:
                    measurement.run(row, each)
    print(table(measurement.figures, measurement.failures, rows, cores))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scaling.json").write_text(
        json.dumps({"machine": environment.machine(), "figures": measurement.figures}, indent=1) + "\n"
    )
    try:
        if measurement.figures:
            draw(measurement.figures, rows, options.out / "scaling.png")
            say(f"picture: {options.out / 'scaling.png'}")
    except ImportError as error:
        say(f"no picture: {error}; pip install matplotlib")
    return int(any(system == "skate" for _, system, _ in measurement.failures))


if __name__ == "__main__":
    sys.exit(main())
