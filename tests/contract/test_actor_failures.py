"""Actors that die: restarts, retried calls, pending limits and what callers see."""

from __future__ import annotations

import os
import signal as signals
from typing import Any

import pytest

import skate
from skate.exceptions import ActorDiedError, ActorUnavailableError, PendingCallsLimitExceeded, RayActorError
from tests.contract.support import Counter, Log, Signal, eventually

pytestmark = pytest.mark.usefixtures("engine")


@skate.remote
class Mortal:
    """Can be told to die."""

    def __init__(self, log: Any = None) -> None:
        if log is not None:
            skate.get(log.append.remote("born"))
        self.calls = 0

    def ping(self) -> str:
        return "pong"

    def count(self) -> int:
        self.calls += 1
        return self.calls

    def pid(self) -> int:
        return os.getpid()

    def die(self) -> None:
        os._exit(1)

    def die_first(self, attempts: Any, times: int = 1) -> int:
        attempt = skate.get(attempts.increment.remote())
        if attempt <= times:
            os._exit(1)
        return attempt

    def fail_first(self, attempts: Any, times: int = 1) -> int:
        attempt = skate.get(attempts.increment.remote())
        if attempt <= times:
            raise ValueError(f"attempt {attempt}")
        return attempt

    def was_restarted(self) -> bool:
        return skate.get_runtime_context().was_current_actor_reconstructed


def ping(actor: Any) -> str | None:
    """Call `ping`, and return None while the actor is being restarted."""
    try:
        return skate.get(actor.ping.remote())
    except ActorUnavailableError:
        return None


def test_the_call_that_kills_an_actor_fails_with_actor_error() -> None:
    mortal = Mortal.remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())


def test_calls_after_death_fail_with_actor_died_error() -> None:
    mortal = Mortal.remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    with pytest.raises(ActorDiedError):
        skate.get(mortal.ping.remote())


def test_calls_queued_behind_the_fatal_one_fail() -> None:
    mortal = Mortal.remote()
    refs = [mortal.die.remote(), mortal.ping.remote(), mortal.ping.remote()]
    for ref in refs:
        with pytest.raises(RayActorError):
            skate.get(ref)


def test_calls_finished_before_death_keep_their_values() -> None:
    mortal = Mortal.remote()
    done = mortal.ping.remote()
    skate.get(done)
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    assert skate.get(done) == "pong"


def test_kill_minus_nine_of_an_actor_is_noticed() -> None:
    mortal = Mortal.remote()
    os.kill(skate.get(mortal.pid.remote()), signals.SIGKILL)

    def dead() -> bool:
        try:
            skate.get(mortal.ping.remote())
        except RayActorError:
            return True
        return False

    eventually(dead)


def test_an_actor_error_names_its_class() -> None:
    mortal = Mortal.remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    with pytest.raises(ActorDiedError, match="Mortal"):
        skate.get(mortal.ping.remote())


def test_an_actor_without_restarts_stays_dead() -> None:
    log = Log.remote()
    mortal = Mortal.remote(log)
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    with pytest.raises(ActorDiedError):
        skate.get(mortal.ping.remote())
    assert skate.get(log.items.remote()) == ["born"]


def test_max_restarts_brings_an_actor_back() -> None:
    mortal = Mortal.options(max_restarts=1).remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    assert eventually(lambda: ping(mortal)) == "pong"


def test_a_restarted_actor_runs_its_constructor_again() -> None:
    log = Log.remote()
    mortal = Mortal.options(max_restarts=1).remote(log)
    assert skate.get(mortal.count.remote()) == 1
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    eventually(lambda: ping(mortal))
    assert skate.get(mortal.count.remote()) == 1
    assert skate.get(log.items.remote()) == ["born", "born"]


def test_a_restarted_actor_knows_that_it_was_restarted() -> None:
    mortal = Mortal.options(max_restarts=1).remote()
    assert skate.get(mortal.was_restarted.remote()) is False
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    eventually(lambda: ping(mortal))
    assert skate.get(mortal.was_restarted.remote()) is True


def test_an_actor_stays_dead_when_its_restarts_are_used_up() -> None:
    mortal = Mortal.options(max_restarts=1).remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    eventually(lambda: ping(mortal))
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    with pytest.raises(ActorDiedError):
        eventually(lambda: ping(mortal))


def test_max_restarts_minus_one_restarts_without_end() -> None:
    mortal = Mortal.options(max_restarts=-1).remote()
    for _ in range(3):
        with pytest.raises(RayActorError):
            skate.get(mortal.die.remote())
        assert eventually(lambda: ping(mortal)) == "pong"


def test_a_named_actor_keeps_its_name_over_a_restart() -> None:
    mortal = Mortal.options(max_restarts=1, name="phoenix").remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    assert eventually(lambda: ping(skate.get_actor("phoenix"))) == "pong"


def test_a_handle_in_a_task_follows_a_restart() -> None:
    mortal = Mortal.options(max_restarts=1).remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die.remote())
    eventually(lambda: ping(mortal))

    @skate.remote
    def use(actor: Any) -> str:
        return skate.get(actor.ping.remote())

    assert skate.get(use.remote(mortal)) == "pong"


def test_max_task_retries_runs_the_fatal_call_again() -> None:
    attempts = Counter.remote()
    mortal = Mortal.options(max_restarts=1, max_task_retries=1).remote()
    assert skate.get(mortal.die_first.remote(attempts)) == 2


def test_max_task_retries_gives_up_when_they_are_used_up() -> None:
    attempts = Counter.remote()
    mortal = Mortal.options(max_restarts=-1, max_task_retries=1).remote()
    with pytest.raises(RayActorError):
        skate.get(mortal.die_first.remote(attempts, times=5))
    assert skate.get(attempts.read.remote()) == 2


def test_max_task_retries_keeps_queued_calls_through_a_restart() -> None:
    attempts = Counter.remote()
    mortal = Mortal.options(max_restarts=1, max_task_retries=-1).remote()
    refs = [mortal.die_first.remote(attempts), mortal.ping.remote(), mortal.ping.remote()]
    assert skate.get(refs) == [2, "pong", "pong"]


def test_method_options_set_max_task_retries() -> None:
    attempts = Counter.remote()
    mortal = Mortal.options(max_restarts=1).remote()
    assert skate.get(mortal.die_first.options(max_task_retries=1).remote(attempts)) == 2


def test_an_exception_of_an_actor_call_is_not_retried_by_default() -> None:
    attempts = Counter.remote()
    mortal = Mortal.options(max_task_retries=3).remote()
    with pytest.raises(ValueError, match="attempt 1"):
        skate.get(mortal.fail_first.remote(attempts))


def test_retry_exceptions_retries_an_actor_call() -> None:
    attempts = Counter.remote()
    mortal = Mortal.remote()
    flaky = mortal.fail_first.options(max_task_retries=2, retry_exceptions=True)
    assert skate.get(flaky.remote(attempts, times=2)) == 3


def test_retry_exceptions_of_the_method_decorator_lists_types() -> None:
    @skate.remote
    class Flaky:
        @skate.method(max_task_retries=2, retry_exceptions=[KeyError])
        def run(self, attempts: Any, error: type[Exception]) -> int:
            attempt = skate.get(attempts.increment.remote())
            if attempt == 1:
                raise error("first")
            return attempt

    flaky = Flaky.remote()
    assert skate.get(flaky.run.remote(Counter.remote(), KeyError)) == 2
    with pytest.raises(ValueError, match="first"):
        skate.get(flaky.run.remote(Counter.remote(), ValueError))


def test_kill_without_restart_is_final() -> None:
    mortal = Mortal.options(max_restarts=-1).remote()
    skate.get(mortal.ping.remote())
    skate.kill(mortal)
    with pytest.raises(ActorDiedError):
        eventually(lambda: ping(mortal) is None)


def test_kill_with_no_restart_off_restarts_the_actor() -> None:
    log = Log.remote()
    mortal = Mortal.options(max_restarts=1).remote(log)
    skate.get(mortal.ping.remote())
    skate.kill(mortal, no_restart=False)
    eventually(lambda: len(skate.get(log.items.remote())) == 2)
    assert eventually(lambda: ping(mortal)) == "pong"


@skate.remote(max_restarts=-1)
class Slow:
    """Takes as long to restart as the test wants."""

    def __init__(self, log: Any, signal: Any) -> None:
        if skate.get(log.append.remote("born")) > 1:
            skate.get(signal.wait.remote())

    def ping(self, value: str = "pong") -> str:
        return value


def test_a_call_to_an_actor_that_restarts_fails_at_once_unless_it_may_be_retried() -> None:
    log, restart, argument = Log.remote(), Signal.remote(), Signal.remote()

    @skate.remote
    def later() -> str:
        skate.get(argument.wait.remote())
        return "late"

    slow = Slow.remote(log, restart)
    skate.get(slow.ping.remote())
    skate.kill(slow, no_restart=False)
    skate.get(restart.wait_for_waiters.remote(1))  # in the constructor, for the second time
    eventually(lambda: ping(slow) is None)
    # Without a limit: on Ray, each try that finds the actor restarting counts.
    retried = slow.ping.options(max_task_retries=-1).remote("retried")
    with pytest.raises(ActorUnavailableError):
        skate.get(slow.ping.remote())
    blocked = slow.ping.remote(later.remote())  # it is not sent before its argument is there
    skate.get(restart.send.remote())
    assert skate.get(retried) == "retried"
    skate.get(argument.send.remote())
    assert skate.get(blocked) == "late"


def test_kill_twice_is_the_same_as_once() -> None:
    mortal = Mortal.remote()
    skate.kill(mortal)
    skate.kill(mortal)
    with pytest.raises(RayActorError):
        eventually(lambda: ping(mortal) is None)


def test_a_constructor_that_dies_is_reported() -> None:
    @skate.remote
    class StillBorn:
        def __init__(self) -> None:
            os._exit(1)

        def ping(self) -> None: ...

    with pytest.raises(RayActorError):
        skate.get(StillBorn.remote().ping.remote())


def test_a_constructor_error_keeps_its_cause_for_every_call() -> None:
    @skate.remote
    class Broken:
        def __init__(self) -> None:
            raise KeyError("missing setting")

        def ping(self) -> None: ...

    broken = Broken.remote()
    for _ in range(2):
        with pytest.raises(ActorDiedError, match="missing setting"):
            skate.get(broken.ping.remote())


def test_max_pending_calls_refuses_the_call_over_the_limit() -> None:
    signal = Signal.remote()

    @skate.remote(max_pending_calls=2)
    class Busy:
        def wait(self) -> str:
            skate.get(signal.wait.remote())
            return "done"

    busy = Busy.remote()
    refs = [busy.wait.remote()]
    skate.get(signal.wait_for_waiters.remote(1))
    refs.append(busy.wait.remote())
    with pytest.raises(PendingCallsLimitExceeded):
        busy.wait.remote()
    skate.get(signal.send.remote())
    assert set(skate.get(refs)) == {"done"}


def test_calls_are_accepted_again_below_the_pending_limit() -> None:
    busy = Mortal.options(max_pending_calls=2).remote()
    for _ in range(6):
        assert skate.get(busy.ping.remote()) == "pong"


def test_an_actor_dies_with_the_actor_that_owns_it() -> None:
    @skate.remote
    class Owner:
        def __init__(self) -> None:
            self.child = Mortal.remote()

        def child_handle(self) -> Any:
            return self.child

    owner = Owner.remote()
    child = skate.get(owner.child_handle.remote())
    assert skate.get(child.ping.remote()) == "pong"
    skate.kill(owner)
    with pytest.raises(RayActorError):
        eventually(lambda: ping(child) is None)


def test_an_object_survives_the_actor_that_returned_it() -> None:
    @skate.remote
    class Maker:
        def make(self) -> bytes:
            return b"x" * 300_000

    maker = Maker.remote()
    ref = maker.make.remote()
    skate.wait([ref])
    skate.kill(maker)
    assert skate.get(ref) == b"x" * 300_000
