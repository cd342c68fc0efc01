"""The name `ray` for Skate, in one process that turns it on and off."""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
import importlib.util
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import cloudpickle
import pytest

import skate
import skate.util
from skate._base import alias
from skate._base.alias import distribution, names
from skate._version import ray_version


@pytest.fixture
def ray() -> Iterator[Any]:
    """The module `ray` while it is Skate."""
    before = {name: module for name, module in sys.modules.items() if names.is_ray(name)}
    for name in before:
        del sys.modules[name]
    alias.install()
    yield importlib.import_module("ray")
    alias.uninstall()
    sys.modules.update(before)


def import_error(statement: str) -> ImportError:
    with pytest.raises(ImportError) as caught:
        exec(statement, {})
    return caught.value


@pytest.mark.parametrize(
    "name", ["actor", "exceptions", "util", "util.queue", "util.state", "util.multiprocessing"]
)
def test_a_submodule_is_the_same_module_under_both_names(ray: Any, name: str) -> None:
    ours = importlib.import_module(f"skate.{name}")
    spec = ours.__spec__
    assert importlib.import_module(f"ray.{name}") is ours
    assert sys.modules[f"ray.{name}"] is ours
    assert ours.__name__ == f"skate.{name}"
    assert ours.__spec__ is spec
    assert spec is not None
    assert spec.name == f"skate.{name}"


def test_every_form_of_import_gives_skate(ray: Any) -> None:
    space: dict[str, Any] = {}
    exec(
        "import ray, ray.util.queue, ray.actor as actor, ray.util.queue as queue\n"
        "from ray.util.placement_group import placement_group\n"
        "from ray.util import ActorPool, scheduling_strategies\n"
        "from ray import ObjectRef as Reference, exceptions\n"
        "from ray import *\n",
        space,
    )
    assert space["ray"] is ray
    assert space["actor"] is skate.actor
    assert space["queue"] is skate.util.queue
    assert space["scheduling_strategies"] is skate.util.scheduling_strategies
    assert space["ActorPool"] is skate.util.ActorPool
    assert space["Reference"] is space["ObjectRef"] is skate.ObjectRef
    assert space["get"] is skate.get


def test_the_top_module_is_called_ray_and_has_the_version_of_its_api(ray: Any) -> None:
    assert ray.__name__ == "ray"
    assert ray.__version__ == ray_version
    assert skate.__version__ != ray_version
    assert ray.__file__ == skate.__file__
    spec = importlib.util.find_spec("ray")
    assert spec is not None
    assert spec.name == "ray"
    assert {"get", "remote", "util", "__version__"} <= set(dir(ray))


def test_a_submodule_is_an_attribute_without_being_imported_first(ray: Any) -> None:
    assert ray.util.multiprocessing.Pool is importlib.import_module("skate.util.multiprocessing").Pool
    assert ray.dag is importlib.import_module("skate.dag")


def test_attributes_are_set_and_deleted_in_skate(ray: Any) -> None:
    original = skate.get
    with mock.patch("ray.get", return_value=42):
        assert ray.get() == skate.get() == 42
    assert ray.get is skate.get is original
    ray.mine = 1
    assert skate.mine == 1  # type: ignore[attr-defined]  # set through the other name
    del ray.mine
    assert not hasattr(skate, "mine")


def test_a_missing_attribute_is_named_as_the_user_wrote_it_with_the_nearest_one(ray: Any) -> None:
    with pytest.raises(
        AttributeError, match=r"module 'ray' has no attribute 'gett'\. Did you mean ray\.get\? .*Skate"
    ):
        _ = ray.gett
    with pytest.raises(
        AttributeError, match=r"module 'ray\.util' has no attribute 'quee'\. Did you mean ray\.util\.queue\?"
    ):
        _ = ray.util.quee
    with pytest.raises(AttributeError, match=r"Did you mean ray\.exceptions\.RayTaskError\?"):
        _ = ray.exceptions.RayTaskErr
    assert not hasattr(ray, "gett")
    assert not hasattr(ray.util, "quee")
    assert getattr(ray, "nothing_like_it", None) is None


def test_a_missing_name_is_an_import_error_as_the_user_wrote_it(ray: Any) -> None:
    error = import_error("from ray.util import quee")
    assert str(error).startswith("cannot import name 'quee' from 'ray.util'. Did you mean ray.util.queue?")
    error = import_error("from ray import gett")
    assert str(error).startswith("cannot import name 'gett' from 'ray'. Did you mean ray.get?")
    error = import_error("from ray.exceptions import RayTaskErr")
    assert str(error).startswith("cannot import name 'RayTaskErr' from 'ray.exceptions'. Did you mean")


def test_a_missing_module_is_named_as_the_user_wrote_it(ray: Any) -> None:
    error = import_error("import ray.utill.queue")
    assert isinstance(error, ModuleNotFoundError)
    assert error.name == "ray.utill"
    assert str(error).startswith("No module named 'ray.utill'. Did you mean ray.util?")
    assert "skate.utill" not in str(error)


@pytest.mark.parametrize(
    "statement", ["import ray.rllib", "import ray.rllib.algorithms.ppo", "from ray import rllib"]
)
def test_a_library_that_skate_does_not_have_is_said_to_be_missing(ray: Any, statement: str) -> None:
    assert "the library ray.rllib is not in this version of Skate. The ray engine has it" in str(
        import_error(statement)
    )


def test_whether_a_module_exists_can_be_asked_without_an_error(ray: Any) -> None:
    assert importlib.util.find_spec("ray.rllib") is None
    assert importlib.util.find_spec("ray.util.nothing") is None
    found = importlib.util.find_spec("ray.job_submission")
    assert found is not None


def test_private_modules_of_skate_are_not_reached_under_the_name_of_ray(ray: Any) -> None:
    for name in ("_base", "_engine", "_api", "cli", "as_ray"):
        assert not hasattr(ray, name)
        assert isinstance(import_error(f"import ray.{name}"), ModuleNotFoundError)


def test_the_listed_private_modules_of_ray_are_there(ray: Any) -> None:
    for name in names.INTERNALS:
        assert importlib.import_module(name).__name__ == f"skate._api.ray_internals{name.removeprefix('ray')}"
    assert ray._raylet.ObjectRef is skate.ObjectRef
    assert ray._private.services.get_node_ip_address() == skate.util.get_node_ip_address()
    assert ray._version.version == ray_version
    assert not hasattr(ray._private, "nothing")
    assert "_private" not in vars(skate)


def test_the_module_is_pickled_as_itself_and_so_are_its_submodules(ray: Any) -> None:
    assert cloudpickle.loads(cloudpickle.dumps(ray)) is ray
    assert pickle.loads(pickle.dumps(ray)) is ray
    assert copy.deepcopy(ray) is ray
    group = importlib.import_module("ray.util.placement_group")
    for module in (ray.util, group, ray.exceptions):
        assert cloudpickle.loads(cloudpickle.dumps(module)) is module


def test_unpickling_the_module_turns_the_alias_on(ray: Any) -> None:
    text = pickle.dumps(ray)
    alias.uninstall()
    assert pickle.loads(text) is ray
    assert alias.installed()


def test_reloading_the_module_leaves_it_as_it_is(ray: Any) -> None:
    assert importlib.reload(ray) is ray
    assert ray.__version__ == ray_version


def test_a_module_keeps_what_its_class_can_do(ray: Any) -> None:
    # The attribute of `ray.util` may be the function of that name.
    module = importlib.import_module("ray.util.placement_group")
    assert callable(module)
    assert type(module).__mro__[1].__name__ == "Adopted"


def test_turning_it_off_leaves_no_trace(ray: Any) -> None:
    group = importlib.import_module("skate.util.placement_group")
    assert importlib.import_module("ray.util.placement_group") is group
    alias.uninstall()
    alias.uninstall()
    assert not alias.installed()
    assert [name for name in sys.modules if names.is_ray(name)] == []
    assert type(skate.util) is types.ModuleType
    assert type(group).__name__ == "_Callable"
    with pytest.raises(AttributeError, match=r"^module 'skate\.util' has no attribute 'quee'$"):
        _ = skate.util.quee  # type: ignore[attr-defined]  # that is the point


def test_a_module_that_somebody_kept_leaves_skate_alone_when_it_is_off(ray: Any) -> None:
    alias.uninstall()
    assert ray.util is skate.util
    assert type(skate.util) is types.ModuleType


def test_turning_it_on_twice_is_turning_it_on_once(ray: Any) -> None:
    alias.install()
    alias.uninstall()
    assert not alias.installed()


def test_skate_itself_speaks_of_skate_while_the_alias_is_on(ray: Any) -> None:
    with pytest.raises(AttributeError, match=r"^module 'skate' has no attribute 'gett'$"):
        _ = skate.gett  # type: ignore[attr-defined]  # that is the point
    assert str(import_error("import skate.nothing")) == "No module named 'skate.nothing'"


def test_the_version_of_ray_is_known_where_ray_is_not_installed(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distribution.MetadataPathFinder, "find_distributions", lambda *_: iter(()))
    assert importlib.metadata.version("ray") == ray_version
    assert importlib.metadata.metadata("ray")["Name"] == "ray"
    assert set(importlib.metadata.packages_distributions()["ray"]) == {"ray"}
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("rayon")


def test_an_installed_ray_keeps_its_version(ray: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    folder = tmp_path / "ray-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ray\nVersion: 9.9\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.metadata.version("ray") == "9.9"
