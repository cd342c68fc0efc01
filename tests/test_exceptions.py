"""Exceptions keep their type, their fields and the remote traceback."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from typing import Any

import pytest

import skate.exceptions as exceptions
from skate.exceptions import (
    ActorAlreadyExistsError,
    ActorDiedError,
    ActorUnavailableError,
    AuthenticationError,
    GetTimeoutError,
    NodeDiedError,
    ObjectFreedError,
    ObjectLostError,
    ObjectReconstructionFailedError,
    OutOfMemoryError,
    RayActorError,
    RayChannelTimeoutError,
    RayError,
    RaySystemError,
    RayTaskError,
    ReferenceCountingAssertionError,
    RpcError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    TaskUnschedulableError,
    UnserializableException,
    WorkerCrashedError,
)

# -- hierarchy --------------------


@pytest.mark.parametrize("name", exceptions.__all__)
def test_every_public_name_is_an_error_that_says_where_it_lives(name: str) -> None:
    cls = getattr(exceptions, name)
    assert issubclass(cls, RayError)
    assert cls.__module__ == "skate.exceptions"
    assert cls.__doc__


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("ActorDiedError", [RayActorError]),
        ("ActorUnavailableError", [RayActorError]),
        ("ActorAlreadyExistsError", [ValueError]),
        ("ActorHandleNotFoundError", [ValueError]),
        ("GetTimeoutError", [TimeoutError]),
        ("RayChannelTimeoutError", [RaySystemError, exceptions.RayChannelError, TimeoutError]),
        ("RayCgraphCapacityExceeded", [RaySystemError]),
        ("RayDirectTransportError", [RaySystemError]),
        ("StreamingGeneratorReplayInconsistentError", [RaySystemError]),
        ("ObjectFetchTimedOutError", [ObjectLostError]),
        ("ObjectFreedError", [ObjectLostError]),
        ("OwnerDiedError", [ObjectLostError]),
        ("ObjectReconstructionFailedError", [ObjectLostError]),
        ("ReferenceCountingAssertionError", [ObjectLostError, AssertionError]),
    ],
)
def test_errors_derive_from_what_user_code_catches(name: str, bases: list[type]) -> None:
    assert all(issubclass(getattr(exceptions, name), base) for base in bases)


def test_skate_names_are_the_same_classes() -> None:
    assert exceptions.SkateError is RayError
    assert exceptions.SkateTaskError is RayTaskError


def test_a_users_subclass_keeps_its_own_module() -> None:
    class Mine(RayError):
        pass

    assert Mine.__module__ == __name__


def test_importing_the_errors_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys, skate._base.errors; "
        "print([m for m in ('asyncio', 'inspect', 'numpy', 'dataclasses') if m in sys.modules])"
    )
    # -S and -E: a site hook of the environment may import anything; the package is found by its path.
    root = str(importlib.import_module("pathlib").Path(exceptions.__file__).parents[1])
    program = f"import sys, types; sys.path.insert(0, {root!r}); m = types.ModuleType('skate'); "
    program += f"m.__path__ = [{root + '/skate'!r}]; sys.modules['skate'] = m; {code}"
    out = subprocess.run(
        [sys.executable, "-S", "-E", "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


# -- fields survive pickle and copy --------------------

SAMPLES = [
    RayError("a", 1),
    exceptions.CrossLanguageError("java said no"),
    TaskCancelledError(task_id="ab12", error_message="by the user"),
    RayTaskError("f", "text", ValueError(3), pid=7, ip="1.2.3.4", actor_repr="A", actor_id="aa"),
    WorkerCrashedError(pid=5, exit_code=3, log_lines=["one", "two"], task_name="f"),
    OutOfMemoryError("full", pid=5, signal=9, likely_cause="a big list"),
    RayActorError("aa", "boo", actor_init_failed=True, preempted=True),
    ActorDiedError("it was killed", actor_id="aa", class_name="A", name="n", signal=15),
    ActorUnavailableError("it is restarting", b"\x01\x02"),
    RaySystemError("no", "trace"),
    AuthenticationError("no token"),
    NodeDiedError("gone"),
    ObjectLostError("ff00", b"addr", "file.py:3"),
    ObjectFreedError("ff00", b"", ""),
    ReferenceCountingAssertionError("ff00", b"", ""),
    ObjectReconstructionFailedError("ff00", "PUT", "it was put", call_site="x.py"),
    RpcError("no", 14),
    RuntimeEnvSetupError("pip failed"),
    TaskUnschedulableError("needs 9 CPUs"),
    ActorAlreadyExistsError("taken"),
    GetTimeoutError("after 3 s"),
    RayChannelTimeoutError("late"),
    UnserializableException("trace", type_name="m.E", message="x", reason="lock"),
]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_keeps_its_fields_through_pickle_and_copy(error: RayError, clone: Any) -> None:
    error.add_note("seen")
    twin = clone(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert repr(twin) == repr(error)
    # Exceptions do not compare by value, so fields are compared by what they show.
    assert {k: repr(v) for k, v in vars(twin).items()} == {k: repr(v) for k, v in vars(error).items()}


def test_a_users_subclass_with_its_own_constructor_survives_pickle() -> None:
    twin = pickle.loads(pickle.dumps(_Custom(1, key="v")))
    assert (twin.first, twin.key, twin.extra) == (1, "v", [1])


class _Custom(RayError):
    __slots__ = ("extra",)

    def __init__(self, first: int, *, key: str) -> None:
        super().__init__(f"first={first}")
        self.first = first
        self.key = key
        self.extra = [1]


# -- messages --------------------


def test_a_crashed_worker_names_its_signal_likely_cause_and_last_log_lines() -> None:
    error = WorkerCrashedError(
        pid=41, exit_code=-9, log_lines=["loading\n", "almost there\n"], task_name="train"
    )
    assert error.signal == 9
    assert error.exit_code is None
    text = str(error)
    assert text.startswith("The worker died unexpectedly while executing this task.")
    for part in ("train", "pid=41", "SIGKILL", "out-of-memory", "    almost there"):
        assert part in text


def test_a_crashed_worker_names_its_exit_code() -> None:
    assert "exit code 3" in str(WorkerCrashedError(exit_code=3))
    assert "SIGKILL" not in str(WorkerCrashedError(exit_code=137))
    assert "out-of-memory" in str(WorkerCrashedError(exit_code=137))


def test_a_given_cause_is_preferred_to_a_guess() -> None:
    error = OutOfMemoryError("Memory ran out.", signal=9, likely_cause="it held 3 GB")
    assert "likely cause: it held 3 GB" in str(error)
    assert "kill -9" not in str(error)


def test_an_unknown_signal_is_shown_as_a_number() -> None:
    assert "signal 200" in str(WorkerCrashedError(signal=200))


def test_a_plain_crash_says_one_sentence() -> None:
    assert str(WorkerCrashedError()) == "The worker died unexpectedly while executing this task."
    assert str(WorkerCrashedError("It hung.")) == "It hung."


def test_an_actor_that_failed_to_start_shows_its_constructors_traceback() -> None:
    cause = RayTaskError(
        "A.__init__",
        "skate::A.__init__() (pid=1)\n  File ...\nZeroDivisionError: division by zero",
        ZeroDivisionError("division by zero"),
        actor_id="aa",
    )
    error = ActorDiedError(cause)
    assert error.actor_init_failed
    assert error.actor_id == "aa"
    assert str(error).startswith(
        "The actor could not be created, because of an error raised in its creation task: skate::A.__init__() (pid=1)\n"
    )
    assert str(error).endswith("ZeroDivisionError: division by zero")
    assert str(ActorDiedError.from_task_error(cause)) == str(error)


def test_an_actor_that_died_says_which_one_and_how() -> None:
    error = ActorDiedError(
        actor_id="aa", class_name="Counter", name="c", exit_code=0, task_name="Counter.inc"
    )
    assert not error.actor_init_failed
    for part in ("The actor died unexpectedly", "Counter", "name: c", "aa", "exit code 0", "Counter.inc"):
        assert part in str(error)
    assert str(ActorDiedError()) == "The actor died unexpectedly before finishing this task."


def test_an_unavailable_actor_is_named_in_hexadecimal() -> None:
    error = ActorUnavailableError("it is restarting", b"\xab\xcd")
    assert error.actor_id == "abcd"
    assert str(error).startswith("The actor abcd is unavailable: it is restarting.")
    assert str(ActorUnavailableError("x", None)).startswith("The actor is unavailable: x.")


def test_a_cancelled_task_is_named() -> None:
    assert "was cancelled" in str(TaskCancelledError())
    assert str(TaskCancelledError("ab")) == "Task ab was cancelled."
    assert str(TaskCancelledError("ab", "Too slow.")) == "Task ab was cancelled. Too slow."
    assert str(TaskCancelledError(error_message="why")) == "why"


def test_a_lost_object_says_where_its_reference_was_made() -> None:
    text = str(ObjectLostError("ff", b"", "a.py:1|b.py:2"))
    assert "ff" in text
    assert "a.py:1\n  b.py:2" in text
    assert "[PUT] it was put" in str(ObjectReconstructionFailedError("ff", "PUT", "it was put"))


def test_errors_without_a_message_still_say_what_to_do() -> None:
    assert "object_store_memory" in str(exceptions.ObjectStoreFullError())
    assert str(exceptions.ObjectStoreFullError("put of 3 GB")) == "put of 3 GB"
    assert "disk" in str(exceptions.OutOfDiskError())
    assert "removed" in str(exceptions.TaskPlacementGroupRemoved())
    assert "removed" in str(exceptions.ActorPlacementGroupRemoved())
    assert str(RuntimeEnvSetupError()) == "Failed to set up runtime environment."
    assert "pip failed" in str(RuntimeEnvSetupError("pip failed"))
    assert "RAY_AUTH_TOKEN" in str(AuthenticationError("Token is missing"))
    assert str(RaySystemError("no", "tb")) == "System error: no\ntraceback: tb"
