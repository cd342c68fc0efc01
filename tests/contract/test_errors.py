"""Errors: types, tracebacks, causes and messages that say what to do."""

from __future__ import annotations

import os
import pickle
import signal as signals
import threading
from typing import Any

import pytest

import skate
from skate.exceptions import RayActorError, RayError, RayTaskError, WorkerCrashedError

pytestmark = pytest.mark.usefixtures("engine")


class CustomError(Exception):
    """An error with fields of its own."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"code {code}: {reason}")
        self.code = code
        self.reason = reason


def error_of(ref: Any) -> BaseException:
    try:
        skate.get(ref)
    except Exception as error:
        return error
    raise AssertionError("the task did not fail")


@skate.remote(max_retries=0)
def divide(a: int, b: int) -> float:
    return a / b


@skate.remote(max_retries=0)
def raise_custom() -> None:
    raise CustomError(7, reason="no paper")


def test_an_exception_keeps_its_type() -> None:
    with pytest.raises(ZeroDivisionError):
        skate.get(divide.remote(1, 0))


def test_an_exception_is_a_task_error_too() -> None:
    error = error_of(divide.remote(1, 0))
    assert isinstance(error, RayTaskError)
    assert isinstance(error, RayError)


def test_a_task_error_has_the_original_as_cause() -> None:
    error = error_of(raise_custom.remote())
    assert isinstance(error, RayTaskError)
    assert isinstance(error.cause, CustomError)
    assert error.cause.code == 7


def test_an_exception_keeps_its_fields() -> None:
    error = error_of(raise_custom.remote())
    assert isinstance(error, CustomError)
    assert (error.code, error.reason) == (7, "no paper")


def test_the_message_shows_function_and_source_line() -> None:
    text = str(error_of(divide.remote(1, 0)))
    assert "divide" in text
    assert "return a / b" in text
    assert "test_errors.py" in text
    assert "ZeroDivisionError: division by zero" in text


def test_the_message_names_actor_class_and_method() -> None:
    @skate.remote
    class Till:
        def open(self) -> None:
            raise KeyError("jammed")

    text = str(error_of(Till.remote().open.remote()))
    assert "Till.open" in text
    assert "jammed" in text


def test_the_message_shows_no_frames_of_the_engine() -> None:
    text = str(error_of(divide.remote(1, 0)))
    assert f"{os.sep}skate{os.sep}_engine{os.sep}" not in text


def test_the_message_shows_the_chain_of_causes() -> None:
    @skate.remote(max_retries=0)
    def chained() -> None:
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("outer") from error

    text = str(error_of(chained.remote()))
    assert "KeyError: 'missing'" in text
    assert "ValueError: outer" in text
    assert "direct cause" in text or "Caused by" in text


def test_an_error_passes_through_nested_tasks_with_its_type() -> None:
    @skate.remote(max_retries=0)
    def outer() -> Any:
        return skate.get(divide.remote(1, 0))

    error = error_of(outer.remote())
    assert isinstance(error, ZeroDivisionError)
    assert "return a / b" in str(error)
    assert "outer" in str(error)


def test_an_error_of_an_argument_names_both_tasks() -> None:
    @skate.remote(max_retries=0)
    def consumer(x: float) -> float:
        return x

    text = str(error_of(consumer.remote(divide.remote(1, 0))))
    assert "consumer" in text
    assert "divide" in text


def test_an_exception_class_defined_in_a_function_keeps_its_type() -> None:
    class LocalError(RuntimeError):
        pass

    @skate.remote(max_retries=0)
    def fail() -> None:
        raise LocalError("local")

    with pytest.raises(LocalError, match="local"):
        skate.get(fail.remote())


def test_an_exception_that_cannot_be_rebuilt_is_still_an_error() -> None:
    class Picky(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__("picky")

    @skate.remote(max_retries=0)
    def fail() -> None:
        raise Picky(1, 2)

    error = error_of(fail.remote())
    assert isinstance(error, RayError)
    assert "picky" in str(error)


def test_an_exception_group_keeps_its_members() -> None:
    @skate.remote(max_retries=0)
    def fail() -> None:
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])

    error = error_of(fail.remote())
    assert isinstance(error, RayError)
    assert "several" in str(error)


def test_stop_iteration_from_a_task_is_an_error() -> None:
    @skate.remote(max_retries=0)
    def fail() -> None:
        next(iter(()))

    assert "StopIteration" in str(error_of(fail.remote()))


def test_errors_are_caught_as_their_base_classes() -> None:
    @skate.remote(max_retries=0)
    def fail() -> None:
        raise FileNotFoundError(2, "gone", "/nowhere")

    with pytest.raises(OSError, match="nowhere") as info:
        skate.get(fail.remote())
    assert info.value.errno == 2


def test_an_error_survives_pickling() -> None:
    error = error_of(divide.remote(1, 0))
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ZeroDivisionError)
    assert "return a / b" in str(copy)


def test_an_error_can_be_raised_again_by_a_task() -> None:
    @skate.remote(max_retries=0)
    def reraise() -> None:
        try:
            skate.get(raise_custom.remote())
        except CustomError:
            raise

    error = error_of(reraise.remote())
    assert isinstance(error, CustomError)
    assert error.code == 7


def test_an_error_can_be_returned_as_a_value() -> None:
    @skate.remote
    def catch() -> Any:
        return [error_of(divide.remote(1, 0))]

    (error,) = skate.get(catch.remote())
    assert isinstance(error, ZeroDivisionError)


def test_an_error_in_a_constructor_shows_its_traceback() -> None:
    @skate.remote
    class Broken:
        def __init__(self) -> None:
            self.value = 1 / 0

        def ping(self) -> None: ...

    error = error_of(Broken.remote().ping.remote())
    assert isinstance(error, RayActorError)
    assert "self.value = 1 / 0" in str(error)


def test_a_worker_that_exits_names_its_exit_code() -> None:
    @skate.remote(max_retries=0)
    def leave() -> None:
        os._exit(17)

    with pytest.raises(WorkerCrashedError, match="exit code 17"):
        skate.get(leave.remote())


def test_a_worker_that_is_killed_names_the_signal() -> None:
    @skate.remote(max_retries=0)
    def suicide() -> None:
        os.kill(os.getpid(), signals.SIGKILL)

    with pytest.raises(WorkerCrashedError, match="SIGKILL"):
        skate.get(suicide.remote())


def test_a_worker_that_crashes_shows_its_last_words() -> None:
    @skate.remote(max_retries=0)
    def last_words() -> None:
        os.write(2, b"it was the butler\n")
        os._exit(1)

    with pytest.raises(WorkerCrashedError, match="it was the butler"):
        skate.get(last_words.remote())


def test_a_crashed_worker_names_the_task_it_ran() -> None:
    @skate.remote(max_retries=0)
    def unlucky() -> None:
        os._exit(1)

    with pytest.raises(WorkerCrashedError, match="unlucky"):
        skate.get(unlucky.remote())


def test_a_dead_actor_names_its_exit_code() -> None:
    @skate.remote
    class Mortal:
        def die(self) -> None:
            os._exit(19)

    with pytest.raises(RayActorError, match="exit code 19"):
        skate.get(Mortal.remote().die.remote())


class Job:
    """Something that cannot be pickled, two attributes down."""

    def __init__(self) -> None:
        self.state = {"guard": threading.Lock()}


def test_an_unpicklable_argument_names_the_path_to_the_culprit() -> None:
    with pytest.raises(TypeError, match=r"(?s)state.*guard.*lock"):
        divide.remote(Job(), 1)


def test_an_unpicklable_keyword_argument_names_the_argument() -> None:
    with pytest.raises(TypeError, match=r"(?s)\bb\b.*lock"):
        divide.remote(1, b=threading.Lock())


def test_an_unpicklable_put_names_the_path_to_the_culprit() -> None:
    with pytest.raises(TypeError, match=r"(?s)state.*guard.*lock"):
        skate.put(Job())


def test_an_unpicklable_closure_names_the_variable() -> None:
    guard = threading.Lock()

    @skate.remote
    def use() -> bool:
        return guard.locked()

    with pytest.raises(TypeError, match=r"(?s)guard.*lock"):
        use.remote()


def test_an_unpicklable_result_is_the_error_of_its_task() -> None:
    @skate.remote(max_retries=0)
    def make() -> Any:
        return {"guard": threading.Lock()}

    with pytest.raises(TypeError, match="lock"):
        skate.get(make.remote())


def test_an_unpicklable_actor_argument_names_the_path_to_the_culprit() -> None:
    @skate.remote
    class Taker:
        def __init__(self, job: Any) -> None: ...

    with pytest.raises(TypeError, match=r"(?s)state.*guard.*lock"):
        Taker.remote(Job())


def test_a_value_that_cannot_be_read_back_fails_its_get() -> None:
    class Broken:
        def __reduce__(self) -> Any:
            return int, ("not a number",)

    with pytest.raises((ValueError, RayError)):
        skate.get(skate.put(Broken()))


def test_two_actors_that_wait_for_each_other_are_reported() -> None:
    @skate.remote
    class Polite:
        def after_you(self, other: Any, depth: int) -> str:
            return skate.get(other.after_you.remote(skate.get_runtime_context().current_actor, depth + 1))

    a, b = Polite.remote(), Polite.remote()
    with pytest.raises(RayError, match=r"(?i)cycle|deadlock"):
        skate.get(a.after_you.remote(b, 0))


def test_an_actor_that_waits_for_itself_is_reported() -> None:
    @skate.remote
    class Narcissus:
        def look(self, me: Any) -> str:
            return skate.get(me.admire.remote())

        def admire(self) -> str:
            return "beautiful"

    actor = Narcissus.remote()
    with pytest.raises(RayError, match=r"(?i)cycle|deadlock"):
        skate.get(actor.look.remote(actor))


def test_inspect_serializability_finds_the_culprit(capsys: pytest.CaptureFixture[str]) -> None:
    ok, failures = skate.util.inspect_serializability(Job(), name="job")
    assert ok is False
    assert any(isinstance(failure.obj, type(threading.Lock())) for failure in failures)
    assert "guard" in capsys.readouterr().out


def test_inspect_serializability_is_happy_with_good_values() -> None:
    ok, failures = skate.util.inspect_serializability([1, "a"], name="good")
    assert ok is True
    assert not failures


def test_every_public_error_is_a_ray_error() -> None:
    errors = [value for name, value in vars(skate.exceptions).items() if name.endswith("Error")]
    assert len(errors) > 20
    assert [error for error in errors if not issubclass(error, RayError)] == []
