"""Training whose workers or driver are killed: the result equals that of an undisturbed run."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import skate
from skate.train import FailureConfig, Result, RunConfig, ScalingConfig
from skate.train.torch import TorchTrainer
from tests.chaos import attacks
from tests.chaos.arena import Arena
from tests.train import strikes

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]

KILLS, STEPS = 20, 60

Learned = tuple[int, list[bytes]]


@pytest.fixture
def session() -> Iterator[None]:
    skate.init(num_cpus=2)
    yield
    skate.shutdown()


def fit(folder: Path, name: str, planned: dict[int, tuple[str, list[int]]]) -> Result:
    scars = folder / f"scars-{name}"
    scars.mkdir()
    return TorchTrainer(
        strikes.learn,
        train_loop_config={"steps": STEPS, "strikes": planned, "scars": str(scars)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            name=name, storage_path=str(folder), failure_config=FailureConfig(max_failures=-1)
        ),
    ).fit()


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("seed", range(3))
def test_workers_killed_at_twenty_random_steps_learn_the_same(seed: int, tmp_path: Path) -> None:
    undisturbed = fit(tmp_path, "undisturbed", {})
    planned = strikes.plan(seed, KILLS, STEPS, world=2)
    killed = fit(tmp_path, "killed", planned)
    # Of ranks that are to die at the same step, one may be ended with the other before it comes to it.
    seen = strikes.scars(tmp_path / "scars-killed")
    attacks.record(len(seen))
    assert {int(scar.split("-")[0]) for scar in seen} == set(planned)
    assert strikes.learned(killed) == strikes.learned(undisturbed)


def run_on(arena: Arena, folder: Path) -> Learned:
    """Run the program to its end, and return what was learned."""
    driver = arena.start("training.py", folder)
    driver.wait_for("over", timeout_s=120)
    assert driver.wait() == 0
    return strikes.learned(Result.from_path(folder / "run"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """What the program learns that nobody disturbs."""
    arena = Arena()
    try:
        return run_on(arena, tmp_path_factory.mktemp("undisturbed"))
    finally:
        arena.close()


def status(folder: Path) -> str:
    found: str = json.loads((folder / "run" / "run.json").read_text())["status"]
    return found


def end_and_go_on(
    arena: Arena, folder: Path, how: signal.Signals, rng: random.Random, undisturbed: Learned
) -> None:
    disturbed = folder / "disturbed"
    driver = arena.start("training.py", disturbed)
    driver.wait_for(f"step {rng.randrange(2, 30)}", timeout_s=90)
    attacks.kill(driver.pid, how)
    code = driver.wait()
    driver.wait_all_gone()
    if how == signal.SIGINT:
        assert code in (-signal.SIGINT, 130), driver.output()
        assert status(disturbed) == "interrupted"
        assert "resumes from the latest checkpoint" in driver.output()
    else:
        assert code == -how
        assert status(disturbed) == "running"
    assert run_on(arena, disturbed) == undisturbed
    assert status(disturbed) == "finished"
    names = sorted(path.name for path in (disturbed / "run").glob("checkpoint_*"))
    kept = [Path(each.path).name for each, _ in Result.from_path(disturbed / "run").best_checkpoints or []]
    assert names == kept


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_was_ended_goes_on_where_it_was(
    arena: Arena, tmp_path: Path, how: signal.Signals, undisturbed: Learned
) -> None:
    end_and_go_on(arena, tmp_path, how, random.Random(0), undisturbed)


@pytest.mark.chaos
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_was_ended_at_any_step_goes_on_where_it_was(
    arena: Arena, tmp_path: Path, how: signal.Signals, seed: int, undisturbed: Learned
) -> None:
    end_and_go_on(arena, tmp_path, how, random.Random(seed), undisturbed)
