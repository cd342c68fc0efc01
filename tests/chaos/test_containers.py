"""Programs in several containers that share the session folder: a death in one does not affect the others."""

from __future__ import annotations

import os
import random
import select
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import containers
from tests.chaos.arena import Arena, Driver, command_of, describe, eventually, parent_of, users_of

SEED = int(os.environ.get("CHAOS_SEED", "0"))
ROUNDS = 6
CONTAINERS = 2
EVERYTHING = ("driver", "node", "template", "worker")
VICTIMS = (EVERYTHING, ("driver",), ("node",), ("node", "template"), ())  # none: it ends by itself


class Site:
    """Folders that containers share, or have each for itself, by the variable that names them."""

    def __init__(self, arena: Arena, folder: Path, shared: str, *, own_pids: bool) -> None:
        self._arena, self._own_pids = arena, own_pids
        self.shared, self._private = folder / "shared", folder / "private"
        for place in (self.shared, self._private):
            place.mkdir()
        self._variables = dict.fromkeys(("SKATE_TMPDIR", "SKATE_SHMDIR"), str(self._private))
        self._variables[shared] = str(self.shared)

    def start(self) -> Driver:
        """Start a program in a container of its own."""
        within = containers.command(private=self._private, own_pids=self._own_pids)
        return self._arena.start("keeping.py", env=self._variables, within=within)

    def left(self) -> list[Path]:
        """Return all folders of sessions in the shared folder."""
        return list(self.shared.glob("skate-*/*"))

    def describe_left(self) -> str:
        """Return a line for each folder of a session, and one for each process that has it open."""
        lines = []
        for folder in self.left():
            lines.append(f"{folder}: {sorted(path.name for path in folder.glob('*'))[:10]}")
            lines += [f"    {describe(pid)}" for pid in users_of(folder)]
        return "\n".join(lines)


@pytest.fixture(params=["SKATE_SHMDIR", "SKATE_TMPDIR"])
def shared(request: pytest.FixtureRequest) -> str:
    """The place that the containers share."""
    name: str = request.param
    return name


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="skn-", dir="/dev/shm"))
    yield made
    shutil.rmtree(made)


def roles(driver: Driver) -> dict[int, str]:
    """Return the role of each process; a container may have a process above its driver."""
    nodes = [pid for pid in driver.processes() if "node_boot" in command_of(pid)]
    found = {}
    for pid in driver.processes():
        ancestry = [pid]
        while ancestry[-1] in nodes:
            ancestry.append(parent_of(ancestry[-1]))
        found[pid] = EVERYTHING[min(len(ancestry), len(EVERYTHING)) - 1]
    return found


def end_somehow(driver: Driver, rng: random.Random) -> None:
    """Kill some processes of a program at a random point of its life, or let it end; wait for the end of all."""
    driver.wait_for(rng.choice(["importing", "started"]))
    select.select([], [], [], rng.uniform(0, 0.5))
    victims = rng.choice(VICTIMS)
    role_of = roles(driver)
    chosen = [pid for pid, role in role_of.items() if role in victims]
    if not chosen:
        driver.let_end()
        assert driver.wait() == 0, driver.output()
    elif victims == EVERYTHING:
        driver.stop_and_kill(role_of)
    else:
        driver.kill(chosen)
        driver.let_end()
    driver.wait_all_gone()


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("own_pids", [True, False])
@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_what_dies_in_a_container_does_not_disturb_the_others(
    arena: Arena, folder: Path, shared: str, seed: int, *, own_pids: bool
) -> None:
    containers.require()
    rng = random.Random(seed)
    site = Site(arena, folder, shared, own_pids=own_pids)
    steady = site.start()
    steady.wait_for("started")
    others = [site.start() for _ in range(CONTAINERS)]
    for _ in range(ROUNDS):
        place = rng.randrange(CONTAINERS)
        end_somehow(others[place], rng)
        others[place] = site.start()
        steady.ask()
        steady.wait_for("whole")
    # The last to start sweeps what the killed ones have left, and nothing else.
    running = [*others, steady, site.start()]
    for driver in running:
        driver.ask()
        driver.wait_for("whole")
    eventually(
        lambda: len(site.left()) == len(running),
        lambda: f"{len(running)} programs run (seed {seed}), and there are\n{site.describe_left()}",
    )
    for driver in running:
        driver.ask()
        driver.wait_for("whole")
        driver.let_end()
        assert driver.wait() == 0, driver.output()
        driver.wait_all_gone()
    assert site.left() == [], site.describe_left()
