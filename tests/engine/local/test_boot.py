"""The start of a node: what it loads, and what the workers that are forked from it can load."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skate

# Slow to load, and needed by programs and workers only.
HEAVY = (
    "asyncio",
    "cloudpickle",
    "dataclasses",
    "hashlib",
    "inspect",
    "logging",
    "traceback",
    "typing_extensions",
)

_NODE = f"""
import sys
from skate._engine.local.node import boot
boot._load_msgspec()
import skate._engine.local.worker.template, skate._engine.local.node.main
print(*[name for name in {HEAVY!r} if name in sys.modules])
"""


def test_a_node_loads_nothing_that_only_programs_and_workers_need() -> None:
    done = subprocess.run([sys.executable, "-c", _NODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.fixture
def session() -> Iterator[None]:
    skate.init(engine="local", num_cpus=1)
    yield
    skate.shutdown()


def test_a_worker_can_import_what_the_node_did_not_load(session: None) -> None:
    @skate.remote
    def decode() -> Any:
        import msgspec
        import typing_extensions

        class Point(msgspec.Struct):
            x: typing_extensions.Annotated[int, msgspec.Meta(ge=0)]

        hints = typing_extensions.get_type_hints(Point, include_extras=True)
        return msgspec.json.decode(b'{"x": 2}', type=Point).x, list(hints)

    assert skate.get(decode.remote()) == (2, ["x"])
