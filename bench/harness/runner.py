"""Go through the rows: every system in every round, in turn, so that a slow moment hits them alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from harness import launcher
from harness.environment import say
from harness.figures import RowResult, Samples, show
from harness.footprint import Footprint
from harness.launcher import Command, ProgramError
from harness.rows import IN_SERVING_VENV, IN_SKATES_VENV, PEERS, Limit, Row


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to run: which interpreters, how long, how often."""

    skate_python: str | None
    ray_python: str | None
    peer_python: str | None
    serving_python: str | None = None
    engine: str = "local"
    cpus: int = 2
    rounds: int = 3
    warmup: float = 1.0
    seconds: float = 2.0

    def systems(self, row: Row) -> list[str]:
        """Return who runs a row, in the order of the table."""
        if row.paired:
            return ["skate", "ray"] if self.skate_python else []
        peers = [name for name in row.peers if self.python_of(name)]
        ray = ["ray"] if self.ray_python and not row.alone else []
        return [*(["skate"] if self.skate_python else []), *ray, *peers]

    def python_of(self, peer: str) -> str | None:
        """Return the interpreter that has a peer, if there is one."""
        if peer in IN_SKATES_VENV:
            return self.skate_python if self.peer_python else None
        return self.serving_python if peer in IN_SERVING_VENV else self.peer_python


class Runner:
    """Measure rows one after the other; raw limits are taken once and shared between rows."""

    def __init__(self, settings: Settings, python: str) -> None:
        self.settings = settings
        self.python = python
        self.footprints: dict[str, dict[str, Footprint]] = {}  # of the last round: by row, by system
        self._limits: dict[str, Samples] = {}

    def measure(self, row: Row) -> RowResult:
        """Return all figures for one row."""
        say(f"{row.name}: {row.title} (load {os.getloadavg()[0]:.1f})")
        systems = self.settings.systems(row)
        result = RowResult(row, {name: Samples() for name in systems})
        if row.observed == "startup":
            # A first start fills the page cache and writes .pyc files; nobody pays for that here.
            for name in systems:
                self._sample(Samples(), partial(self._take, row, name))
        for number in range(self.settings.rounds):
            if row.paired:
                self._sample_both(row, result)
                continue
            # Back and forth, so that nobody always runs after the same other.
            for name in systems if number % 2 == 0 else reversed(systems):
                self._sample(result.systems[name], partial(self._take, row, name))
        for name in systems:
            samples = result.systems[name]
            say(f"  {PEERS.get(name, name):16} {samples.error or show(samples.median, row.unit)}")
        result.limits = {limit.label: self._limit(limit) for limit in row.limits}
        return result

    def _sample(self, samples: Samples, take: Callable[[], float]) -> None:
        if samples.error is None:
            try:
                samples.values.append(take())
            except ProgramError as error:
                samples.error = str(error)

    def _sample_both(self, row: Row, result: RowResult) -> None:
        """Take a figure of every system from one process, which needs Ray beside Skate."""
        if not result.systems or any(samples.error for samples in result.systems.values()):
            return
        try:
            found = launcher.figures(self._command(row, "skate", (row.name, *self._clock())))
        except ProgramError as error:
            result.systems["skate"].error = str(error)
            return
        for name, samples in result.systems.items():
            samples.values.append(found[name])

    def _take(self, row: Row, system: str) -> float:
        if row.observed == "peak":
            return self._peak(row, system)
        if row.observed:
            return self._observe(row.observed, self._command(row, system, (str(self.settings.cpus),)))
        return launcher.figure(self._command(row, system, (row.name, *self._clock())))

    def _peak(self, row: Row, system: str) -> float:
        """Return the most megabytes that a system had at a time; keep the readings for the picture."""
        footprint = launcher.peak_memory(self._command(row, system, (row.name, *self._clock())))
        self.footprints.setdefault(row.name, {})[system] = footprint
        return footprint.peak / 1e6

    def _observe(self, what: str, command: Command) -> float:
        return launcher.startup_seconds(command) if what == "startup" else launcher.idle_megabytes(command)

    def _clock(self) -> tuple[str, ...]:
        settings = self.settings
        return (
            f"--cpus={settings.cpus}",
            f"--warmup={settings.warmup}",
            f"--seconds={settings.seconds}",
        )

    def _command(self, row: Row, system: str, arguments: tuple[str, ...]) -> Command:
        settings = self.settings
        if system == "skate":
            assert settings.skate_python is not None
            return Command(
                python=settings.skate_python,
                program=row.program,
                arguments=("skate", *arguments),
                environment={"SKATE_ENGINE": settings.engine},
                keep_path=True,
            )
        if system == "ray":
            assert settings.ray_python is not None
            return Command(
                python=settings.ray_python,
                program=row.program,
                arguments=("ray", *arguments),
                environment={"RAY_USAGE_STATS_ENABLED": "0"},
            )
        python = settings.python_of(system)
        assert python is not None
        return Command(python=python, program=f"peer_{system}", arguments=(system, *arguments))

    def _limit(self, limit: Limit) -> Samples:
        if limit.row not in self._limits:
            samples = self._limits[limit.row] = Samples()
            for _ in range(self.settings.rounds):
                self._sample(samples, partial(self._take_limit, limit))
        return self._limits[limit.row]

    def _take_limit(self, limit: Limit) -> float:
        if limit.row in ("startup", "memory"):
            return self._observe(limit.row, Command(python=self.python, program="bare"))
        arguments = ("limit", limit.row, *self._clock())
        return launcher.figure(Command(python=self.python, program="limits", arguments=arguments))
