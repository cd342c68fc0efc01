from __future__ import annotations

import collections
import functools
import io
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from skate._base import reducers
from skate._base.pickle_trace import trace_failures
from skate.util.check_serialize import FailureTuple, inspect_serializability, unserializable_path

global_lock = threading.Lock()


class Model:
    def __init__(self) -> None:
        self.name = "m"
        self._lock = threading.Lock()

    def work(self) -> None:
        """Do nothing."""


class Slotted:
    __slots__ = ("held", "never_set")

    def __init__(self) -> None:
        self.held = threading.Lock()


class SlottedChild(Slotted):
    def __init__(self) -> None:
        super().__init__()
        self.more = 1


@dataclass
class Record:
    size: int
    held: Any


@dataclass(slots=True)
class SlottedRecord:
    size: int
    held: Any


@dataclass(slots=True, frozen=True)
class FrozenRecord:
    size: int
    held: Any


class Items(list[Any]):
    pass


class ReducesToAttribute:
    def __init__(self) -> None:
        self.held = threading.Lock()

    def __reduce__(self) -> Any:
        return ReducesToAttribute, (self.held,)


class ReducesToTemporary:
    def __reduce__(self) -> Any:
        return ReducesToTemporary, ([1, threading.Lock()],)


class StateWithTemporary:
    def __getstate__(self) -> Any:
        return {"made": {"up": threading.Lock()}}


class StateIsCulprit:
    def __getstate__(self) -> Any:
        return threading.Lock()


class Refuses:
    def __reduce__(self) -> Any:
        raise RuntimeError("not today")


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr either")

    def __reduce__(self) -> Any:
        raise RuntimeError("not today")


Pair = collections.namedtuple("Pair", ["left", "right"])


def uses_global() -> Any:
    return global_lock


def make_nested() -> Any:
    held = threading.Lock()

    def inner() -> Any:
        return held

    def outer() -> Any:
        return inner()

    return outer


def with_default(a: int, b: Any = global_lock, *, c: int = 1) -> None:
    """Holds a lock in its defaults."""


def with_keyword_default(*, c: Any = global_lock) -> None:
    """Holds a lock in its keyword defaults."""


def test_nothing_is_reported_for_what_pickles(by_reference: None) -> None:
    assert unserializable_path([1, "a", {2: (None, Pair(1, 2))}, uses_global, Model]) is None


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: (Model(),), "args[0]._lock"),
        (lambda: {"kw": [1, {"x": threading.Lock()}]}, "args['kw'][1]['x']"),
        (lambda: {("a", 1): threading.Lock()}, "args[('a', 1)]"),
        (lambda: {Model(): 1}, "args.<key>._lock"),
        (lambda: {Model()}, "args.<item>._lock"),
        (lambda: frozenset([Model()]), "args.<item>._lock"),
        (Slotted, "args.held"),
        (SlottedChild, "args.held"),
        (lambda: Record(1, threading.Lock()), "args.held"),
        (lambda: SlottedRecord(1, threading.Lock()), "args.held"),
        (lambda: FrozenRecord(1, threading.Lock()), "args.held"),
        (lambda: Items([1, threading.Lock()]), "args[1]"),
        (lambda: collections.OrderedDict(a=1, b=threading.Lock()), "args['b']"),
        (lambda: collections.deque([1, threading.Lock()]), "args[1]"),
        (lambda: Pair(1, threading.Lock()), "args.right"),
        (lambda: functools.partial(print, 1, threading.Lock()), "args.args[1]"),
        (lambda: functools.partial(print, end=threading.Lock()), "args.keywords['end']"),
        (lambda: Model().work, "args.__self__._lock"),
        (ReducesToAttribute, "args.held"),
        (ReducesToTemporary, "args.<reduce>[0][1]"),
        (StateWithTemporary, "args.made['up']"),
        (StateIsCulprit, "args.<state>"),
    ],
)
def test_the_path_names_every_step(make: Any, path: str) -> None:
    assert unserializable_path(make(), "args") == f"{path} (a _thread.lock)"


def test_a_closure_is_named_variable_by_variable() -> None:
    found = unserializable_path(make_nested())
    assert found == "outer.<closure>.inner.<closure>.held (a _thread.lock)"


def test_globals_and_defaults_of_a_function_are_named() -> None:
    assert unserializable_path(uses_global) == "uses_global.<globals>.global_lock (a _thread.lock)"
    assert unserializable_path(with_default) == "with_default.__defaults__[0] (a _thread.lock)"
    found = unserializable_path(with_keyword_default)
    assert found == "with_keyword_default.__kwdefaults__['c'] (a _thread.lock)"


def test_a_class_defined_in_a_function_is_looked_into() -> None:
    held = threading.Lock()

    class Local:
        cache = held

        def method(self) -> Any:
            return held

        @property
        def prop(self) -> Any:
            return held

    assert unserializable_path(Local) == "Local.cache (a _thread.lock)"
    assert unserializable_path(Local()) == "obj.__class__.cache (a _thread.lock)"
    del Local.cache
    assert unserializable_path(Local) == "Local.method.<closure>.held (a _thread.lock)"
    del Local.method
    assert unserializable_path(Local) == "Local.prop.fget.<closure>.held (a _thread.lock)"


def test_an_object_that_refuses_is_its_own_culprit() -> None:
    assert unserializable_path([Refuses()]) == f"obj[0] (a {__name__}.Refuses)"


def test_cycles_end() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    cycle.append({"back": (cycle, Model())})
    assert unserializable_path(cycle) == "obj[1]['back'][1]._lock (a _thread.lock)"


def test_a_long_path_is_shown_with_its_middle_left_out() -> None:
    value: Any = threading.Lock()
    for _ in range(300):
        value = [value]
    path = unserializable_path(value)
    assert path is not None
    assert path == f"obj{'[0]' * 7}.<285 more>{'[0]' * 8} (a _thread.lock)"


def test_the_walk_is_bounded_and_skips_plain_values() -> None:
    plain: list[Any] = [list(range(100_000)), threading.Lock()]
    assert len(trace_failures(plain, work_limit=5_000)) == 1
    objects: list[Any] = [[[] for _ in range(10_000)], threading.Lock()]
    assert trace_failures(objects, work_limit=5_000) == []


def test_tracing_leaves_the_recursion_limit_as_it_was() -> None:
    import sys

    before = sys.getrecursionlimit()
    deep: list[Any] = []
    for _ in range(20 * before):
        deep = [deep]
    failures = trace_failures(deep)
    assert [type(failure.error) for failure in failures] == [RecursionError]
    assert sys.getrecursionlimit() == before


class Nosy:
    """Looks into something else while it is looked into."""

    def __reduce__(self) -> Any:
        raise TypeError(f"found {unserializable_path(global_lock)}")


def test_tracing_may_nest() -> None:
    [failure] = trace_failures([Nosy()])
    assert str(failure.error) == "found obj (a _thread.lock)"


def test_registered_serializers_count() -> None:
    reducers.register(Model, serializer=lambda model: model.name, deserializer=str)
    try:
        assert unserializable_path([Model()]) is None
    finally:
        reducers.deregister(Model)
    assert unserializable_path([Model()]) is not None


def test_large_arrays_are_not_copied() -> None:
    numpy = pytest.importorskip("numpy")
    assert unserializable_path([numpy.zeros(1000), threading.Lock()]) == "obj[1] (a _thread.lock)"
    assert unserializable_path(numpy.array([1, threading.Lock()], dtype=object)) is not None


def inspect(obj: Any, **options: Any) -> tuple[bool, list[FailureTuple], str]:
    out = io.StringIO()
    fine, failures = inspect_serializability(obj, print_file=out, **options)
    return fine, sorted(failures, key=lambda failure: failure.path), out.getvalue()


def test_inspection_of_something_fine_says_so() -> None:
    fine, failures, text = inspect([1, 2])
    assert fine
    assert failures == []
    assert "Checking Serializability of [1, 2]" in text


def test_inspection_gives_object_path_and_parent() -> None:
    model = Model()
    holder = {"m": model}
    fine, [failure], text = inspect(holder, name="job")
    assert not fine
    assert failure.obj is model._lock
    assert failure.parent is model
    assert failure.path == ("job", "m", "_lock")
    assert failure.name == "_lock"
    assert "job['m']._lock (a _thread.lock): cannot pickle '_thread.lock' object" in text


def test_inspection_of_the_culprit_itself_has_an_empty_path() -> None:
    _, [failure], _ = inspect(global_lock)
    assert (failure.obj, failure.path, failure.parent, failure.name) == (global_lock, (), None, "unknown")


def test_inspection_finds_several_culprits_but_each_once() -> None:
    first, second = Model(), Model()
    _, failures, text = inspect([first, second, first._lock])
    assert [failure.obj for failure in failures] == [first._lock, second._lock]
    assert text.count("!!! FAIL") == 2


def test_inspection_stops_at_the_given_depth() -> None:
    inner = [threading.Lock()]
    middle = [inner]
    _, [failure], text = inspect([middle], depth=2)
    assert failure.obj is inner
    assert failure.parent is middle
    assert "1 more levels" in text
    value = [middle]
    _, [failure], _ = inspect(value, depth=0)
    assert failure.obj is value


def test_inspection_shows_the_qualified_name_of_each_function_on_the_way() -> None:
    _, _, text = inspect(make_nested())
    assert "in 'make_nested.<locals>.outer': <closure>.inner = " in text
    assert "in 'make_nested.<locals>.inner': <closure>.held = " in text


def test_inspection_warns_when_an_object_is_at_fault_itself() -> None:
    _, _, text = inspect(Refuses())
    assert "WARNING" in text
    assert "inspect_serializability" in text
    assert "not today" in text


def test_inspection_survives_a_repr_that_raises() -> None:
    fine, [failure], text = inspect([BadRepr()])
    assert not fine
    assert isinstance(failure.obj, BadRepr)
    assert "obj=<BadRepr instance at" in repr(failure)
    assert "not today" in text


def test_inspection_prints_to_standard_output_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    inspect_serializability(global_lock)
    assert "_thread.lock" in capsys.readouterr().out
