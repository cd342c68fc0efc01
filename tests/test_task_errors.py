"""An exception raised in a task keeps its type and its fields on the way to its caller."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import io
import json
import os
import pickle
import threading
import traceback
import weakref
from abc import ABCMeta
from typing import Any

import cloudpickle
import pytest

from skate.exceptions import (
    ActorDiedError,
    GetTimeoutError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    UnserializableException,
)
from tests.task_failures import caught, divide, raiser


class NeedsArguments(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        self.code = code
        self.detail = detail

    def describe(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def doubled(self) -> int:
        return self.code * 2

    def __reduce__(self) -> Any:
        return _needs_arguments, (self.code, self.detail)


def _needs_arguments(code: int, detail: str) -> NeedsArguments:
    return NeedsArguments(code, detail=detail)


class Slotted(ValueError):
    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        super().__init__(f"at {where}")
        self.where = where

    def __reduce__(self) -> Any:
        return Slotted, (self.where,)


class Final(Exception):
    def __init_subclass__(cls, **kwargs: Any) -> None:
        raise TypeError("Final is final")


class Meta(ABCMeta):
    pass


class WithMetaclass(KeyError, metaclass=Meta):
    pass


class PickyNew(RuntimeError):
    def __new__(cls, must: int, have: int) -> PickyNew:
        return super().__new__(cls, must, have)


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    reason: str


class ComputedArgs(Exception):
    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def args(self) -> Any:  # type: ignore[override]
        return (self._text,)


class ShadowsFields(Exception):
    def __init__(self, pid: str) -> None:
        super().__init__(pid)
        self.pid = pid

    @property
    def cause(self) -> str:
        return "mine"


class OverridesPickling(Exception):
    def __reduce_ex__(self, protocol: Any) -> Any:
        return OverridesPickling, ("reduced",)

    def __repr__(self) -> str:
        return "<custom>"

    def __str__(self) -> str:
        return "custom text"


class TaggedGroup(ExceptionGroup):
    tag = "none"

    def derive(self, members: Any) -> TaggedGroup:
        group = TaggedGroup(self.message, members)
        group.tag = self.tag
        return group


class NoPickle(OSError):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        return "holds a lock"


class NoUnpickle(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__("kept text")


# -- one exception, two classes --------------------

CAUSES = [
    ValueError("x"),
    KeyError("key"),
    OSError(2, "No such file", "/x"),
    FileNotFoundError(2, "No such file", "/x"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    json.JSONDecodeError("bad", "{", 1),
    ImportError("no module", name="m", path="p"),
    SyntaxError("bad", ("f.py", 1, 2, "x x")),
    StopIteration(5),
    StopAsyncIteration(),
    SystemExit(3),
    KeyboardInterrupt("abc"),
    asyncio.CancelledError("c"),
    AttributeError("a", name="n", obj=1),
    NeedsArguments(4, detail="d"),
    Slotted("here"),
    WithMetaclass("m"),
    PickyNew(1, 2),
    OverridesPickling("original"),
    TaskCancelledError("ab"),
    ActorDiedError("gone", actor_id="aa"),
    GetTimeoutError("late"),
    io.UnsupportedOperation("both OSError and ValueError"),
]


@pytest.mark.parametrize("cause", CAUSES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(
    "clone", [lambda e: e, copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))]
)
def test_a_remote_exception_keeps_its_type(cause: BaseException, clone: Any) -> None:
    error = clone(clone(caught(raiser(cause)).as_instanceof_cause()))
    with pytest.raises(type(cause)) as info:
        raise error
    assert isinstance(info.value, RayTaskError)
    assert type(error.cause) is type(cause)
    assert error.args == cause.args or isinstance(cause, OverridesPickling)
    assert str(error).startswith("skate::fails() (pid=1234)")
    assert f"RayTaskError({type(cause).__name__})" in repr(error)
    assert type(error).__module__ == "skate.exceptions"
    assert error.function_name == "fails"
    assert type(error) is type(caught(raiser(cause)).as_instanceof_cause())
    assert "".join(traceback.format_exception(error))


def test_fields_methods_and_properties_of_the_cause_answer() -> None:
    error: Any = caught(raiser(NeedsArguments(4, detail="d"))).as_instanceof_cause()
    assert (error.code, error.detail, error.describe(), error.doubled) == (4, "d", "4: d", 8)
    with pytest.raises(AttributeError, match="absent"):
        error.absent  # noqa: B018
    assert not hasattr(error, "absent")
    assert error.pid == 1234


def test_fields_kept_by_the_interpreter_answer() -> None:
    missing: Any = caught(os.stat, "/no/such/file").as_instanceof_cause()
    assert (missing.errno, missing.filename) == (2, "/no/such/file")
    slotted: Any = caught(raiser(Slotted("here"))).as_instanceof_cause()
    assert slotted.where == "here"
    slotted.where = "there"
    assert slotted.cause.where == "there"
    decode: Any = caught(raiser(CAUSES[4])).as_instanceof_cause()
    assert (decode.encoding, decode.object, decode.start, decode.reason) == ("utf-8", b"\xff", 0, "invalid")
    stop: Any = caught(raiser(StopIteration(5))).as_instanceof_cause()
    assert stop.value == 5
    leave: Any = caught(raiser(SystemExit(3))).as_instanceof_cause()
    assert leave.code == 3


def test_a_stop_iteration_ends_a_delegating_generator_with_its_value() -> None:
    class Remote:
        def __iter__(self) -> Remote:
            return self

        def __next__(self) -> int:
            raise caught(raiser(StopIteration(5))).as_instanceof_cause()

    def delegates() -> Any:
        return (yield from Remote())

    with pytest.raises(StopIteration) as info:
        next(delegates())
    assert info.value.value == 5


def test_the_users_own_fields_win_but_the_cause_stays_reachable() -> None:
    error: Any = caught(raiser(ShadowsFields("their pid"))).as_instanceof_cause()
    assert error.pid == "their pid"
    assert isinstance(error.cause, ShadowsFields)
    assert error.cause.cause == "mine"


def test_a_class_that_computes_its_args_gets_the_cause_there() -> None:
    error = caught(raiser(ComputedArgs("boom"))).as_instanceof_cause()
    assert isinstance(error, ComputedArgs)
    assert error.args == (error.cause,)
    assert "boom" in str(error)


def test_a_frozen_dataclass_keeps_its_type() -> None:
    error = caught(raiser(Frozen("cold"))).as_instanceof_cause()
    assert isinstance(error, Frozen)
    assert error.reason == "cold"


def test_a_field_with_a_default_in_the_class_is_the_causes_own() -> None:
    class HTTPError(Exception):
        status = 500

    cause = HTTPError()
    cause.status = 404
    error: Any = caught(raiser(cause)).as_instanceof_cause()
    assert error.status == 404


def test_text_and_pickling_of_the_users_class_do_not_take_over() -> None:
    error = caught(raiser(OverridesPickling("x"))).as_instanceof_cause()
    assert str(error).startswith("skate::fails()")
    assert repr(error) == "RayTaskError(OverridesPickling)(<custom>)"
    assert pickle.loads(pickle.dumps(error)).cause.args == ("reduced",)


def test_reraising_by_type_gives_the_users_class() -> None:
    error = caught(divide).as_instanceof_cause()
    fresh = type(error)("new text")  # type: ignore[call-arg]
    assert type(fresh) is ZeroDivisionError
    assert fresh.args == ("new text",)


def test_a_class_that_cannot_be_subclassed_comes_as_a_task_error_that_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = caught(raiser(Final("end")))
    error = plain.as_instanceof_cause()
    assert error is plain
    assert type(error.cause) is Final
    assert "Final: end" in str(error)
    assert "You can use `ray_task_error.cause` to access the user exception." in caplog.text
    with pytest.raises(TypeError, match="Final is final"):
        plain.make_dual_exception_instance()
    assert type(pickle.loads(pickle.dumps(error)).cause) is Final


def test_an_error_that_is_already_caught_as_its_cause_comes_back_unchanged() -> None:
    for cause in (Exception("e"), RayError("r"), BaseException("b")):
        plain = RayTaskError("f", "text", cause)
        assert plain.as_instanceof_cause() is plain
    nothing = RayTaskError("f", "text", None)
    assert nothing.as_instanceof_cause() is nothing


def test_the_dual_of_a_dual_is_itself() -> None:
    error = caught(divide).as_instanceof_cause()
    assert error.as_instanceof_cause() is error
    wrapped = RayTaskError("g", "outer text", error).as_instanceof_cause()
    assert isinstance(wrapped, ZeroDivisionError)
    assert str(wrapped) == "outer text"


def test_the_cause_of_a_dual_cannot_be_replaced() -> None:
    with pytest.raises(AttributeError):
        caught(divide).as_instanceof_cause().cause = ValueError()


def test_dual_classes_are_cached_and_go_away_with_local_classes() -> None:
    def make() -> weakref.ref[type]:
        class Local(Exception):
            pass

        one = RayTaskError("f", "t", Local()).as_instanceof_cause()
        two = RayTaskError("f", "t", Local()).as_instanceof_cause()
        assert type(one) is type(two)
        return weakref.ref(Local)

    reference = make()
    # One round for the dual, one for the class that only the dual kept.
    gc.collect()
    gc.collect()
    assert reference() is None


def test_classes_made_in_functions_travel_with_cloudpickle() -> None:
    class Local(ValueError):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one, two)
            self.total = one + two

    error = caught(
        raiser(Local(1, 2)), dumps=cloudpickle.dumps, loads=cloudpickle.loads
    ).as_instanceof_cause()
    twin = pickle.loads(cloudpickle.dumps(error))
    assert type(twin.cause).__name__ == "Local"
    assert isinstance(twin, type(twin.cause))
    assert twin.total == 3


# -- exception groups --------------------


def test_a_group_is_caught_with_except_star() -> None:
    group = ExceptionGroup("several", [ValueError(1), TypeError(2)])
    error = pickle.loads(pickle.dumps(caught(raiser(group)).as_instanceof_cause()))
    assert isinstance(error, ExceptionGroup)
    assert isinstance(error, RayTaskError)
    assert [type(member) for member in error.exceptions] == [ValueError, TypeError]
    assert error.message == "several"
    seen: list[Any] = []
    try:
        raise error
    except* ValueError as part:
        seen.append(part.exceptions)
    except* TypeError as part:
        seen.append(part.exceptions)
    try:
        raise error
    except* RayTaskError as part:
        seen.append(part.exceptions)
    assert [type(members[0]) for members in seen] == [ValueError, TypeError, ValueError]
    assert len(seen[2]) == 2
    assert "ValueError: 1" in str(error)
    assert "TypeError: 2" in str(error)


def test_a_group_with_its_own_class_splits_into_its_own_class() -> None:
    group = TaggedGroup("several", [ValueError(1), TypeError(2)])
    group.tag = "red"
    error: Any = caught(raiser(group)).as_instanceof_cause()
    part, rest = error.split(ValueError)
    assert (type(part), part.tag, type(rest)) == (TaggedGroup, "red", TaggedGroup)


def test_a_plain_exception_is_caught_with_except_star() -> None:
    seen: list[Any] = []
    try:
        raise caught(divide).as_instanceof_cause()
    except* ZeroDivisionError as part:
        seen.append(part.exceptions[0])
    assert isinstance(seen[0], RayTaskError)


def test_a_group_of_base_exceptions_comes_as_a_task_error(caplog: pytest.LogCaptureFixture) -> None:
    error = caught(raiser(BaseExceptionGroup("g", [KeyboardInterrupt()]))).as_instanceof_cause()
    assert type(error) is RayTaskError
    assert isinstance(error.cause, BaseExceptionGroup)
    assert "KeyboardInterrupt" in str(error)


def test_a_groups_text_is_shown_once_when_it_passes_through_another_task() -> None:
    inner = caught(
        raiser(ExceptionGroup("several", [ValueError("only")])), name="inner"
    ).as_instanceof_cause()
    assert str(caught(raiser(inner), name="outer")).count("ValueError: only") == 1


# -- exceptions that cannot travel --------------------


@pytest.mark.parametrize(
    ("cause", "how"), [(NoPickle(), "writing it failed"), (NoUnpickle(1, 2), "reading it back failed")]
)
def test_an_exception_that_cannot_travel_leaves_its_type_name_text_and_traceback(
    cause: BaseException, how: str
) -> None:
    plain = caught(raiser(cause), dumps=pickle.dumps, loads=pickle.loads)
    error = pickle.loads(pickle.dumps(plain)).as_instanceof_cause()
    assert isinstance(error, RayTaskError)
    assert isinstance(error, UnserializableException)
    stand_in = error.cause
    assert type(stand_in) is UnserializableException
    assert stand_in.type_name == f"{__name__}.{type(cause).__name__}"
    assert stand_in.message == str(cause)
    assert how in stand_in.reason
    assert "isn't serializable" in str(stand_in)
    assert "in fails" in stand_in.original_stack_trace
    assert str(error).startswith("skate::fails() (pid=1234)")
    assert type(cause).__name__ in str(error)


def test_something_that_unpickles_to_no_exception_is_replaced() -> None:
    plain = caught(divide, dumps=pickle.dumps, loads=lambda data: 3)
    assert isinstance(plain.cause, UnserializableException)
    assert "gave a int" in str(plain.cause)


def test_an_exception_that_travels_is_kept_as_it_is() -> None:
    plain = caught(divide, dumps=pickle.dumps, loads=pickle.loads)
    assert type(plain.cause) is ZeroDivisionError
