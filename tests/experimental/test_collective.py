from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

np: Any = pytest.importorskip("numpy")
pytest.importorskip("torch")

import skate  # noqa: E402
from skate.experimental import collective  # noqa: E402
from skate.experimental.util.types import AllReduceOp, Device, ReduceOp  # noqa: E402
from skate.util import collective as operations  # noqa: E402


class Member:
    def add(self, name: str) -> float:
        value = np.ones(1)
        operations.allreduce(value, name)
        return float(value[0])


@pytest.fixture
def members() -> Iterator[list[Any]]:
    skate.init(num_cpus=2, preload=["torch"])
    yield [skate.remote(num_cpus=0)(Member).remote() for _ in range(2)]
    skate.shutdown()


def test_a_driver_makes_finds_and_takes_down_a_group(members: list[Any]) -> None:
    group = collective.create_collective_group(members, "gloo", name="pair")
    assert (group.name, group.backend, group.actors) == ("pair", "GLOO", members)
    assert [group.get_rank(actor) for actor in (*members, None)] == [0, 1, -1]
    assert skate.get([actor.add.remote("pair") for actor in members]) == [2.0, 2.0]
    assert collective.get_collective_groups(members[:1], "gloo") == [group]
    assert collective.get_collective_groups(members[:1], "nccl") == []
    with pytest.raises(RuntimeError, match="already in a group"):
        collective.create_collective_group(members, "gloo")
    collective.destroy_all_collective_groups()
    assert collective.get_collective_groups(members) == []
    with pytest.raises(ValueError, match="unique"):
        collective.create_collective_group([members[0], members[0]], "gloo")


def test_a_group_that_does_not_exist_is_not_destroyed() -> None:
    with pytest.raises(ValueError, match="nothing"):
        collective.destroy_collective_group("nothing")
    with pytest.raises(ValueError, match="CommunicatorHandle"):
        collective.destroy_collective_group(3)  # type: ignore[arg-type]


def test_operations_have_words() -> None:
    assert AllReduceOp().reduceOp is ReduceOp.SUM
    assert str(Device.GPU) == "gpu"
