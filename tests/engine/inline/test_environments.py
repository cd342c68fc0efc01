"""Runtime environments apply during calls only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import skate
from skate._engine.inline.environments import Environments, ProcessSettings
from skate.exceptions import RuntimeEnvSetupError


@skate.remote
def variable(name: str) -> str | None:
    return os.environ.get(name)


@skate.remote
class Keeper:
    def set(self, name: str, value: str) -> None:
        os.environ[name] = value

    def get(self, name: str) -> str | None:
        return os.environ.get(name)

    def move(self, folder: str) -> None:
        os.chdir(folder)

    def where(self) -> str:
        return os.getcwd()

    async def get_slowly(self, name: str) -> str | None:
        return os.environ.get(name)


@pytest.mark.usefixtures("engine")
def test_variables_hold_for_the_task_alone() -> None:
    ref = variable.options(runtime_env={"env_vars": {"INLINE_A": "1"}}).remote("INLINE_A")
    assert skate.get(ref) == "1"
    assert "INLINE_A" not in os.environ
    assert skate.get(variable.remote("INLINE_A")) is None


@pytest.mark.usefixtures("engine")
def test_a_child_inherits_and_an_actor_does_not() -> None:
    @skate.remote
    def parent(keeper: Any) -> list[str | None]:
        return skate.get(
            [variable.remote("INLINE_A"), keeper.get.remote("INLINE_A"), variable.remote("PATH")]
        )

    keeper = Keeper.remote()
    ref = parent.options(runtime_env={"env_vars": {"INLINE_A": "parent"}}).remote(keeper)
    assert skate.get(ref) == ["parent", None, os.environ["PATH"]]


@pytest.mark.usefixtures("engine")
def test_an_actor_finds_its_own_changes_and_nobody_elses(tmp_path: Path) -> None:
    here = os.getcwd()
    keeper, other = Keeper.remote(), Keeper.remote()
    skate.get([keeper.set.remote("INLINE_A", "mine"), keeper.move.remote(str(tmp_path))])
    assert skate.get([keeper.get.remote("INLINE_A"), keeper.where.remote()]) == ["mine", str(tmp_path)]
    assert skate.get(keeper.get_slowly.remote("INLINE_A")) == "mine"
    assert skate.get([other.get.remote("INLINE_A"), other.where.remote()]) == [None, here]
    assert os.getcwd() == here
    assert "INLINE_A" not in os.environ


@pytest.mark.usefixtures("engine")
def test_what_a_failing_task_changes_is_undone(tmp_path: Path) -> None:
    @skate.remote
    def mess() -> None:
        os.chdir(tmp_path)
        os.environ["INLINE_A"] = "1"
        del os.environ["PATH"]
        raise ValueError("messy")

    here, path = os.getcwd(), os.environ["PATH"]
    with pytest.raises(ValueError, match="messy"):
        skate.get(mess.remote())
    assert (os.getcwd(), os.environ["PATH"], os.environ.get("INLINE_A")) == (here, path, None)


def test_the_environment_of_the_job_is_not_the_drivers() -> None:
    with skate.init(engine="inline", runtime_env={"env_vars": {"INLINE_A": "job"}}):
        assert skate.get(variable.remote("INLINE_A")) == "job"
        assert skate.get(Keeper.remote().get_slowly.remote("INLINE_A")) == "job"
        assert "INLINE_A" not in os.environ


@pytest.mark.parametrize("field", ["pip", "uv"])
def test_packages_cannot_be_installed_and_the_error_says_what_to_do(field: str) -> None:
    with pytest.raises(RuntimeEnvSetupError, match="inline engine cannot"):
        skate.init(engine="inline", runtime_env={field: ["requests"]})
    with skate.init(engine="inline"):
        ref = variable.options(runtime_env={field: ["requests"]}).remote("A")
        with pytest.raises(RuntimeEnvSetupError, match="local engine"):
            skate.get(ref)
        actor = Keeper.options(runtime_env={field: ["requests"]}).remote()
        with pytest.raises(RuntimeEnvSetupError, match="local engine"):
            skate.get(actor.where.remote())


def test_surroundings_nest() -> None:
    environments = Environments({}, "")
    outer, inner = ProcessSettings({"INLINE_A": "outer"}), ProcessSettings({"INLINE_B": "inner"})
    with environments.apply(outer):
        with environments.apply(inner):
            assert (os.environ.get("INLINE_A"), os.environ["INLINE_B"]) == (None, "inner")
        assert (os.environ["INLINE_A"], os.environ.get("INLINE_B")) == ("outer", None)
    assert "INLINE_A" not in os.environ
