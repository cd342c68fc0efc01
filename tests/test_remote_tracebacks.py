"""A task error shows the remote traceback: source lines, the chain of causes, and none of our frames."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

import skate.exceptions as exceptions
from skate.exceptions import (
    ActorDiedError,
    RayTaskError,
)
from tests.task_failures import caught, divide, raiser


def test_the_text_starts_with_function_and_process_and_shows_source_lines() -> None:
    lines = str(caught(divide)).splitlines()
    assert lines[0] == "skate::divide() (pid=1234)"
    assert "    return 1 / 0" in lines
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert not any("Traceback (most recent call last)" in line for line in lines)


def test_an_actors_method_is_named_with_its_actor() -> None:
    error = caught(divide, name="A.f", actor_repr="<A 3>", actor_id="ab", ip="10.0.0.1")
    assert str(error).splitlines()[0] == "skate::A.f() (pid=1234, ip=10.0.0.1, actor_id=ab, repr=<A 3>)"
    assert (error.function_name, error.pid, error.ip) == ("A.f", 1234, "10.0.0.1")


def test_skip_frames_drops_the_outermost_frames() -> None:
    assert "in caught" in str(caught(divide))
    assert "in caught" not in str(caught(divide, skip_frames=1))


def test_frames_of_skate_are_left_out() -> None:
    def asks() -> None:
        caught(divide).as_instanceof_cause().make_dual_exception_instance()
        RayTaskError.from_exception("f", ValueError(), no_such_option=1)  # type: ignore[call-arg]

    namespace = _code_in_skate("def call(function):\n    function()\n")
    text = str(caught(lambda: namespace["call"](asks), name="f"))
    assert "in asks" in text
    assert "in call" not in text


def test_all_frames_are_kept_where_nothing_else_would_remain() -> None:
    namespace = _code_in_skate("def call():\n    raise ValueError('ours')\n")
    text = str(caught(namespace["call"], skip_frames=1))
    assert "in call" in text


def test_frames_of_skate_are_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKATE_FULL_TRACEBACK", "1")
    namespace = _code_in_skate("def call(function):\n    function()\n")
    assert "in call" in str(caught(lambda: namespace["call"](divide), name="f"))


def _code_in_skate(source: str) -> dict[str, Any]:
    filename = exceptions.__file__.replace("exceptions.py", "_pretended.py")
    namespace: dict[str, Any] = {}
    exec(compile(source, filename, "exec"), namespace)
    return namespace


def test_the_chain_of_causes_follows_the_exception() -> None:
    def chained() -> None:
        try:
            try:
                divide()
            except ZeroDivisionError:
                {}["missing"]
        except KeyError as error:
            raise ValueError("top") from error

    text = str(caught(chained))
    parts = [
        "ValueError: top",
        "Caused by:",
        "KeyError: 'missing'",
        "Raised while handling:",
        "ZeroDivisionError",
    ]
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    assert "    return 1 / 0" in text


def test_a_suppressed_context_is_not_shown() -> None:
    def hides() -> None:
        try:
            divide()
        except ZeroDivisionError:
            raise ValueError("top") from None

    assert "ZeroDivisionError" not in str(caught(hides))


def test_a_cycle_of_causes_ends() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert str(caught(raiser(one))).count("ValueError: one") == 1


def test_notes_are_shown_once() -> None:
    error = ValueError("x")
    error.add_note("a hint")
    dual = caught(raiser(error)).as_instanceof_cause()
    assert "".join(traceback.format_exception(dual)).count("a hint") == 1


def test_deep_recursion_gives_a_short_text() -> None:
    def forever() -> None:
        forever()

    text = str(caught(forever))
    assert "RecursionError" in text
    assert len(text.splitlines()) < 30


def test_an_exception_whose_str_fails_is_still_reported() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    error = caught(raiser(Mute()), dumps=pickle.dumps, loads=pickle.loads)
    assert "Mute" in str(error)


def test_tasks_calling_tasks_show_each_traceback_once_outermost_first() -> None:
    def hop(error: BaseException) -> BaseException:
        return pickle.loads(pickle.dumps(error))

    def inner() -> None:
        raise hop(caught(divide, name="inner")).as_instanceof_cause()  # type: ignore[attr-defined]

    def middle() -> None:
        raise hop(caught(inner, name="middle")).as_instanceof_cause()  # type: ignore[attr-defined]

    error = hop(caught(middle, name="outer")).as_instanceof_cause()  # type: ignore[attr-defined]
    assert isinstance(error, ZeroDivisionError)
    text = str(error)
    order = [text.index(f"skate::{name}()") for name in ("outer", "middle", "inner")]
    assert order == sorted(order)
    assert all(text.count(f"skate::{name}()") == 1 for name in ("outer", "middle", "inner"))
    assert text.count("ZeroDivisionError: division by zero") == 1
    assert "skate.exceptions.RayTaskError(ZeroDivisionError): skate::middle() (pid=1234)" in text
    assert type(error.cause) is ZeroDivisionError


def test_an_argument_that_failed_is_reported_under_the_task_that_wanted_it() -> None:
    upstream = caught(divide, name="b")
    error = RayTaskError.from_dependency("a", upstream, pid=9)
    assert str(error).splitlines()[:3] == [
        "skate::a() (pid=9)",
        "  The task did not run: input arguments for this task could not be computed:",
        "skate.exceptions.RayTaskError: skate::b() (pid=1234)",
    ]
    assert isinstance(error.as_instanceof_cause(), ZeroDivisionError)
    dead = RayTaskError.from_dependency("a", ActorDiedError("gone"))
    assert isinstance(dead.as_instanceof_cause(), ActorDiedError)
