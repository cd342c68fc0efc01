"""Kill -9 of anything at any moment: nothing hangs, and nothing is left."""

from __future__ import annotations

import random
import select

import pytest

from tests.chaos.arena import Arena, Driver, eventually

# Who is killed together, and how often that is tried.
VICTIMS = {
    ("driver",): 6,
    ("node",): 5,
    ("template",): 3,
    ("worker",): 5,
    ("driver", "worker"): 2,
    ("driver", "template"): 2,
    ("driver", "node"): 3,
    ("node", "template"): 2,
    ("node", "worker"): 1,
    ("driver", "node", "template", "worker"): 2,
}


def one_round(arena: Arena, seed: int) -> None:
    """Start a driver, kill some of its processes at a random point, and see what comes of it."""
    rng = random.Random(seed)
    (victims,) = rng.choices(list(VICTIMS), list(VICTIMS.values()))
    driver = arena.start("mixed.py", seed)
    reach_a_random_point(driver, rng)
    tree = driver.tree()
    everyone = [pid for pids in tree.values() for pid in pids]
    if "worker" in victims and "node" not in victims and len(tree["worker"]) > 1:
        tree["worker"] = rng.sample(tree["worker"], rng.randint(1, len(tree["worker"])))
    killed = [pid for role in victims for pid in tree[role]]
    if len(victims) == 4:
        driver.stop_and_kill(everyone)
    else:
        driver.kill(killed)
    if "driver" not in victims:
        driver.read_steps(rng.randint(1, 5))
        driver.let_end()
        code = driver.wait()
        assert code == 0, (
            f"seed {seed}: the driver ended with {code} after {victims} died\n{driver.output()[-6000:]}"
        )
        driver.assert_nothing_left()
    elif not set(tree["node"] + tree["template"]) - set(killed):
        # Nobody is left who could clean up: the next session does, and ends what workers have just started.
        sweep(arena)
        driver.wait_all_gone()
    else:
        driver.assert_nothing_left()


def reach_a_random_point(driver: Driver, rng: random.Random) -> None:
    kind = rng.random()
    if kind < 0.2:
        driver.wait_for("importing")
        # Somewhere in the import, the start of the node, or soon after.
        select.select([], [], [], rng.uniform(0, 0.5))
    else:
        driver.wait_for("started")
        driver.read_steps(rng.randrange(8))
        select.select([], [], [], rng.uniform(0, 0.01))


def sweep(arena: Arena) -> None:
    """Check that the next session removes what the last one had to leave."""
    next_one = arena.start("mixed.py", 0)
    next_one.wait_for("started")
    eventually(lambda: len(arena.sessions()) <= 2, "only the session that runs has folders")
    next_one.let_end()
    assert next_one.wait() == 0
    next_one.assert_nothing_left()


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_left_after_a_kill(arena: Arena, seed: int) -> None:
    one_round(arena, seed)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(200))
def test_nothing_is_left_after_a_kill_200_times(arena: Arena, seed: int) -> None:
    one_round(arena, 1000 + seed)
