"""Skate beside Ray, its peers and the machine's limits: one table, one picture.

Run it with `make bench`, or by hand for a part of it:

    .venv/bin/python bench/run.py --only tasks_sync actor_sync --quick
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from harness import environment, launcher
from harness.environment import say
from harness.figures import Results
from harness.memory_picture import draw_memory
from harness.picture import draw
from harness.rows import IN_SERVING_VENV, ROWS, choose
from harness.runner import Runner, Settings
from harness.table import print_table

PEER_PACKAGES = ("joblib", "distributed", "polars", "duckdb", "daft", "datasets", "uvicorn")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write and draw; return 1 if a program failed on Skate."""
    options = parse(arguments)
    settings = prepare(options)
    launcher.adopt_orphans()
    if settings.skate_python:
        environment.compile_skate(settings.skate_python)
    results = Results(environment.machine(), describe(settings))
    if results.machine["load"] > 0.5:
        say(f"warning: the load is {results.machine['load']:.1f}; figures are only good on a quiet machine")
    runner = Runner(settings, sys.executable)
    try:
        for row in options.rows:
            results.rows.append(runner.measure(row))
    except KeyboardInterrupt:
        say("interrupted; showing the rows that are complete")
    results.write(options.out / "results.json")
    if options.json:
        print(json.dumps(results.as_dict(), indent=2))
    else:
        print_table(results)
    try:
        if draw(results, options.out / "results.png"):
            say(f"picture: {options.out / 'results.png'}")
        for row in options.rows:
            if row.name in runner.footprints:
                draw_memory(row, runner.footprints[row.name], options.out / f"{row.name}.png")
                say(f"picture: {options.out / row.name}.png")
    except ImportError as error:
        say(f"no picture: {error}; pip install matplotlib")
    return int(any(result.verdict == "failed" for result in results.rows))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options, with `rows` looked up."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None,
        epilog="rows: " + ", ".join(row.name for row in ROWS),
    )
    parser.add_argument("--only", nargs="+", metavar="ROW", help="measure these rows only")
    parser.add_argument("--quick", action="store_true", help="one short round: a rough idea, not a result")
    parser.add_argument("--rounds", type=int, help="how often each program runs on each system (3)")
    parser.add_argument("--cpus", type=int, default=2, help="num_cpus for every system (2)")
    parser.add_argument("--engine", default="local", help="Skate's engine (local)")
    parser.add_argument("--systems", nargs="+", choices=("skate", "ray"), default=["skate", "ray"])
    parser.add_argument("--no-peers", action="store_true", help="leave out everyone but Skate and Ray")
    parser.add_argument("--json", action="store_true", help="print the results as JSON instead of a table")
    parser.add_argument(
        "--out", type=Path, default=environment.BENCH / "out", help="folder for JSON and picture"
    )
    parser.add_argument("--skate-python", default=sys.executable, help="interpreter that has Skate")
    parser.add_argument("--ray-python", help="interpreter that has Ray (bench/.venv-ray, built when missing)")
    parser.add_argument("--peer-python", help="interpreter that has the peers (as for Ray)")
    parser.add_argument(
        "--serving-python",
        help="interpreter that has LitServe and BentoML (bench/.venv-serving, built when missing)",
    )
    options = parser.parse_args(arguments)
    try:
        options.rows = choose(options.only)
    except ValueError as error:
        parser.error(str(error))
    for name in ("rounds", "cpus"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    return options


def prepare(options: argparse.Namespace) -> Settings:
    """Turn options into settings; build the venvs of Ray and the peers that are needed and not named."""
    ray_python = options.ray_python
    peer_python = options.peer_python or ray_python
    wants_ray = "ray" in options.systems
    if (wants_ray and not ray_python) or (not options.no_peers and not peer_python):
        built = environment.venv_python("ray")
        ray_python, peer_python = ray_python or built, peer_python or built
    serving_python = options.serving_python
    serves = any(set(IN_SERVING_VENV) & set(row.peers) for row in options.rows)
    if serves and not options.no_peers and not serving_python:
        serving_python = environment.venv_python("serving")
    return Settings(
        skate_python=options.skate_python if "skate" in options.systems else None,
        ray_python=ray_python if wants_ray else None,
        peer_python=None if options.no_peers else peer_python,
        serving_python=None if options.no_peers else serving_python,
        engine=options.engine,
        cpus=options.cpus,
        rounds=options.rounds or (1 if options.quick else 3),
        warmup=0.3 if options.quick else 1.0,
        seconds=0.7 if options.quick else 2.0,
    )


def describe(settings: Settings) -> dict[str, object]:
    """Return what was compared and how, for the results."""
    found: dict[str, object] = dict(environment.versions(sys.executable, ("skate", "numpy")))
    if settings.ray_python:
        found["ray"] = environment.versions(settings.ray_python, ("ray",))["ray"]
    for python, packages in (
        (settings.peer_python, PEER_PACKAGES),
        (settings.serving_python, IN_SERVING_VENV),
    ):
        if python:
            found |= {
                name: version
                for name, version in environment.versions(python, packages).items()
                if name != "python"
            }
    return found | {
        "engine": settings.engine,
        "num_cpus": settings.cpus,
        "rounds": settings.rounds,
        "warmup_seconds": settings.warmup,
        "timed_seconds": settings.seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
