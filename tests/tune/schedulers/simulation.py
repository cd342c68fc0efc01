"""A controller that runs trials of synthetic learning curves, one report at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from skate.tune.experiment import Trial
from skate.tune.schedulers import TrialScheduler

Train = Callable[[dict[str, Any], float, int], float]


@dataclass
class Saved:
    """A checkpoint: the state of a trial, and how long it has trained."""

    state: float
    iteration: int


@dataclass
class SavedResult:
    checkpoint: Any
    metrics: dict[str, Any] | None


@dataclass
class Handle:
    result: SavedResult | None

    def resolve(self, block: bool = True) -> SavedResult | None:
        return self.result


class Simulation:
    """Runs trials until they end or nothing can run.

    Args:
        scheduler: The scheduler under test.
        configs: The configurations of the trials.
        train: Returns the next state of a trial by its configuration, its state so far, and its iteration. The state
            is what it reports as "score".
        slots: How many trials run at a time.
        length: The iteration at which a trial ends by itself.
        seed: Which running trial reports next is random with a seed, and in turns without.
    """

    search_alg: Any = None

    def __init__(
        self,
        scheduler: TrialScheduler,
        configs: list[dict[str, Any]],
        train: Train,
        *,
        slots: int = 4,
        length: int = 10_000,
        seed: int | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.train = train
        self.slots = slots
        self.length = length
        self.random = random.Random(seed) if seed is not None else None
        self.trials: list[Trial] = []
        self.running: list[Trial] = []
        self.state: dict[str, float] = {}
        self.iteration: dict[str, int] = {}
        self.steps = 0
        self.events: list[tuple[str, str]] = []
        for config in configs:
            self.add(config)

    def add(self, config: dict[str, Any]) -> Trial:
        number = len(self.trials)
        trial = Trial("simulated", config=config, trial_id=f"{number:04d}", experiment_tag=f"{number}")
        self.trials.append(trial)
        self.state[trial.trial_id] = 0.0
        self.iteration[trial.trial_id] = 0
        self.scheduler.on_trial_add(self, trial)
        return trial

    # What schedulers call.

    def get_trials(self) -> list[Trial]:
        return self.trials

    def get_live_trials(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.is_finished()]

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        if should_checkpoint:
            trial.checkpoint = self._saved(trial)
        self.running.remove(trial)
        trial.set_status(Trial.PAUSED)
        self.events.append(("pause", trial.trial_id))

    def stop_trial(self, trial: Trial) -> None:
        if trial.is_finished():
            return
        if trial in self.running:
            self.running.remove(trial)
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        else:
            self.scheduler.on_trial_remove(self, trial)
        trial.set_status(Trial.TERMINATED)
        self.events.append(("stop", trial.trial_id))

    def fail(self, trial: Trial) -> None:
        self.running.remove(trial)
        self.scheduler.on_trial_error(self, trial)
        trial.set_status(Trial.ERROR)

    def _schedule_trial_save(self, trial: Trial, result: dict[str, Any] | None = None) -> Handle:
        trial.checkpoint = self._saved(trial)
        return Handle(SavedResult(trial.checkpoint, result))

    def _saved(self, trial: Trial) -> Any:
        return Saved(self.state[trial.trial_id], self.iteration[trial.trial_id])

    # The loop.

    def start_trials(self) -> None:
        while len(self.running) < self.slots:
            trial = self.scheduler.choose_trial_to_run(self)
            if trial is None:
                return
            assert trial.status in (Trial.PENDING, Trial.PAUSED), f"{trial} is {trial.status}"
            if isinstance(trial.checkpoint, Saved):
                self.state[trial.trial_id] = trial.checkpoint.state
                self.iteration[trial.trial_id] = trial.checkpoint.iteration
            trial.set_status(Trial.RUNNING)
            self.running.append(trial)
            self.events.append(("run", trial.trial_id))

    def step(self) -> bool:
        """Let one trial report; return whether there was one."""
        self.start_trials()
        if not self.running:
            return False
        if self.random is not None:
            trial = self.random.choice(self.running)
        else:
            trial = self.running[0]
            self.running.append(self.running.pop(0))
        self.report(trial)
        return True

    def report(self, trial: Trial) -> str:
        name = trial.trial_id
        self.steps += 1
        self.iteration[name] += 1
        self.state[name] = self.train(trial.config, self.state[name], self.iteration[name])
        result = {"training_iteration": self.iteration[name], "score": self.state[name]}
        if self.iteration[name] >= self.length:
            trial.update_last_result(result)
            self.running.remove(trial)
            self.scheduler.on_trial_complete(self, trial, result)
            trial.set_status(Trial.TERMINATED)
            return TrialScheduler.STOP
        action = self.scheduler.on_trial_result(self, trial, result)
        trial.update_last_result(result)
        if action == TrialScheduler.PAUSE:
            self.pause_trial(trial)
        elif action == TrialScheduler.STOP:
            self.stop_trial(trial)
        return action

    def run(self, max_steps: int = 100_000) -> Simulation:
        """Run until every trial has ended; fail if some can never run again."""
        for _ in range(max_steps):
            if not self.step():
                break
        stuck = [str(trial) for trial in self.get_live_trials()]
        assert not stuck or self.steps >= max_steps, f"never run again: {stuck}"
        return self

    def best(self) -> Trial:
        return max(self.trials, key=lambda trial: self.state[trial.trial_id])


class QueueSimulation(Simulation):
    """A simulation whose controller knows the waiting trials, and never lets the scheduler search all of them."""

    def get_trials(self) -> list[Trial]:
        raise AssertionError("a decision searched all trials")

    def get_waiting_trials(self) -> Iterator[Trial]:
        for status in (Trial.PENDING, Trial.PAUSED):
            yield from (trial for trial in self.trials if trial.status == status)


class ExploitSimulation(Simulation):
    """A simulation whose controller copies trials itself, and has a folder for files."""

    experiment_path: Any = None

    def exploit(self, trial: Trial, source: Trial, config: dict[str, Any], checkpoint: Any) -> bool:
        saved = checkpoint.resolve().checkpoint if isinstance(checkpoint, Handle) else checkpoint
        if saved is None:
            return False
        if trial.status != Trial.PAUSED:
            self.pause_trial(trial, should_checkpoint=False)
        trial.set_config(config)
        trial.checkpoint = saved
        self.events.append(("exploit", f"{trial.trial_id}<{source.trial_id}"))
        return True


def linear(config: dict[str, Any], state: float, iteration: int) -> float:
    """A curve that rises with the slope in its configuration."""
    return float(config["slope"]) * iteration


def slopes(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Configurations with different slopes in random order."""
    values = [{"slope": float(number)} for number in range(1, count + 1)]
    random.Random(seed).shuffle(values)
    return values
