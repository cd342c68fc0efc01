"""The interface between the API and the engines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import skate
import skate._engine as engines
from skate._base.object_ref import ReferenceOwner
from skate._base.remote_pdb import Breakpoint
from skate._engine.abc import Engine, Table, View
from skate._engine.inline.engine import InlineEngine
from skate._engine.inline.objects import Objects
from skate._engine.local.client.client import Client
from skate._engine.local.client.engine import LocalEngine
from skate._engine.local.wire.messages import Question
from skate._engine.ray.engine import RayEngine

SOURCE = Path(skate.__file__).parent


@pytest.mark.parametrize("kind", [InlineEngine, LocalEngine, RayEngine])
def test_an_engine_implements_the_whole_interface(kind: type[Engine]) -> None:
    assert issubclass(kind, Engine)
    assert not kind.__abstractmethods__


@pytest.mark.parametrize("kind", [Client, Objects, RayEngine])
def test_an_owner_of_references_implements_the_whole_interface(kind: type[ReferenceOwner]) -> None:
    assert issubclass(kind, ReferenceOwner)
    assert not kind.__abstractmethods__


def test_every_member_of_the_interface_has_a_docstring() -> None:
    members = [value for name, value in vars(Engine).items() if callable(value) and not name.startswith("_")]
    assert members
    assert [member.__name__ for member in members if not member.__doc__] == []


@pytest.mark.parametrize("table", [*Table, *View])
def test_a_node_answers_for_every_table(table: Table | View) -> None:
    assert Question(table) == table


def test_an_engine_without_an_optional_feature_says_so() -> None:
    with skate.init(engine="inline", num_cpus=1):
        engine = engines.current()
        assert engine.native_state is None
        assert engine.why_by_id(skate.put(1).binary()) is None
        assert engine.observe(View.SUMMARY) is None
        assert not engine.is_forked
        assert dict(engine.address_info) == {}
        assert not engine.announce_breakpoint(Breakpoint.__new__(Breakpoint))


def test_no_member_of_an_engine_is_reached_by_its_name() -> None:
    """`getattr(engine, "member")` would hide a use of the interface from mypy."""
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[target, *_]):
                    name = ast.unparse(target)
                    if name in ("engine", "engines.current()", "engines.running()") or name.endswith(
                        "._engine"
                    ):
                        wrong.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert wrong == []
