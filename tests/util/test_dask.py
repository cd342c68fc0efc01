from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skate
import skate.data
from tests.contract.support import Counter, Log

dask = pytest.importorskip("dask", minversion="2024.12")
da = pytest.importorskip("dask.array")

from dask._task_spec import Alias, DataNode, List, Task, TaskRef  # noqa: E402
from dask.diagnostics import ProgressBar  # noqa: E402

from skate.util.dask import (  # noqa: E402
    ProgressBarCallback,
    RayDaskCallback,
    disable_dask_on_ray,
    enable_dask_on_ray,
    ray_dask_get,
    ray_dask_get_sync,
    ray_dask_persist,
)
from skate.util.dask._graph import refs_in, substitute_values  # noqa: E402

GETS = pytest.mark.parametrize("get", [ray_dask_get, ray_dask_get_sync])


@dask.delayed
def add(x: Any, y: Any) -> Any:
    return x + y


def inc(x: int) -> int:
    return x + 1


class TestGet:
    @GETS
    def test_computes_a_graph_of_today(self, any_engine: str, get: Any) -> None:
        graph = {
            "a": DataNode("a", 1),
            "b": Task("b", inc, TaskRef("a")),
            "c": Task("c", sum, List(TaskRef("a"), TaskRef("b"), 10)),
            "d": Alias("d", "c"),
        }
        assert get(graph, "d") == 13
        assert get(graph, ["a", "b", "d"]) == (1, 2, 13)

    @GETS
    def test_computes_a_graph_of_tuples(self, any_engine: str, get: Any) -> None:
        graph = {"a": 1, "b": (inc, "a"), "c": (sum, ["a", "b"]), "d": "c", ("e", 0): (operator.add, "d", 1)}
        assert get(graph, [["a", "b"], [("e", 0)]]) == ((1, 2), (4,))

    @GETS
    def test_computes_delayed_calls_that_share_work(self, any_engine: str, get: Any) -> None:
        x = add(1, 2)
        assert dask.compute(add(x, x), add(x, 1), scheduler=get) == (6, 4)

    def test_computes_arrays(self, any_engine: str) -> None:
        x = da.ones((10, 10), chunks=5)
        assert (x + x.T).sum().compute(scheduler=ray_dask_get) == 200

    def test_computes_data_frames(self, local: None) -> None:
        pd = pytest.importorskip("pandas")
        dd = pytest.importorskip("dask.dataframe")
        frame = pd.DataFrame({"key": [3, 1, 2, 1] * 25, "value": range(100)})
        lazy = dd.from_pandas(frame, npartitions=4)
        with enable_dask_on_ray():
            assert (
                lazy.groupby("key").value.sum().compute().to_dict()
                == frame.groupby("key").value.sum().to_dict()
            )
            assert lazy.set_index("value").key.compute().tolist() == frame.key.tolist()

    @pytest.mark.parametrize("scheduler", ["sync", ray_dask_get])
    def test_computes_data_frames_of_datasets(self, local: None, scheduler: Any) -> None:
        pytest.importorskip("dask.dataframe")
        with dask.config.set(scheduler=scheduler):  # also for the first partition, whose types Dask looks up
            frame = skate.data.range(4, override_num_blocks=2).to_dask().compute()
        assert frame["id"].tolist() == [0, 1, 2, 3]
        assert str(frame["id"].dtype) == "int64[pyarrow]"

    def test_runs_tasks_in_other_processes(self, local: None) -> None:
        assert dask.delayed(os.getpid)().compute(scheduler=ray_dask_get) != os.getpid()

    def test_runs_only_what_is_asked_for(self, any_engine: str, tmp_path: Path) -> None:
        graph = {"a": (inc, 1), "b": (Path.touch, tmp_path / "ran")}
        assert ray_dask_get(graph, "a") == 2
        assert not (tmp_path / "ran").exists()

    def test_a_task_can_use_skate_and_dask(self, local: None) -> None:
        @skate.remote
        def text(x: int) -> str:
            return f"The answer is {x}"

        zero = skate.put(0)

        def outer(x: int) -> Any:
            inner = add(x, skate.get(zero)).compute(scheduler=ray_dask_get)
            return skate.get(text.remote(inner))

        assert dask.delayed(outer)(6).compute(scheduler=ray_dask_get) == "The answer is 6"

    @GETS
    def test_an_error_keeps_its_type(self, any_engine: str, get: Any) -> None:
        def fail() -> None:
            raise ZeroDivisionError("on purpose")

        with pytest.raises(ZeroDivisionError, match="on purpose"):
            add(1, dask.delayed(fail)()).compute(scheduler=get)

    def test_a_missing_key_is_reported(self, any_engine: str) -> None:
        with pytest.raises(KeyError, match="nowhere"):
            ray_dask_get({"a": 1}, "nowhere")
        with pytest.raises(KeyError, match="nowhere"):
            ray_dask_get({"a": Task("a", inc, TaskRef("nowhere"))}, "a")


class TestReferences:
    def test_a_reference_is_passed_as_its_value(self, any_engine: str) -> None:
        assert add(skate.put(1), skate.put(2)).compute(scheduler=ray_dask_get) == 3
        assert ray_dask_get({"a": skate.put(1), "b": (inc, "a")}, ["a", "b"]) == (1, 2)

    def test_persisting_gives_references(self, any_engine: str) -> None:
        x = (da.ones(10, chunks=5) + 1).persist(scheduler=ray_dask_get)
        assert {type(value) for value in x.dask.values()} == {skate.ObjectRef}
        assert (x * 2).sum().compute(scheduler=ray_dask_get) == 40
        assert x.persist(scheduler=ray_dask_get).sum().compute(scheduler=ray_dask_get) == 20

    def test_persisting_does_not_wait(self, local: None) -> None:
        from tests.contract.support import Signal

        event = Signal.remote()

        def wait() -> int:
            skate.get(event.wait.remote())
            return 1

        (x,) = ray_dask_persist(dask.delayed(wait)())
        skate.get(event.send.remote())
        assert x.compute(scheduler=ray_dask_get) == 1

    def test_references_are_found_where_dask_fuses_them_into_a_task(self, any_engine: str) -> None:
        ref = skate.put(5)
        fused = Task.fuse(DataNode("a", ref), Task("b", inc, TaskRef("a")))
        assert list(refs_in(fused)) == [ref]
        assert substitute_values(fused, {ref: 5})({}) == 6
        assert list(refs_in(fused)) == [ref]  # The graph itself is as it was.
        assert ray_dask_get({"b": fused}, "b") == 6

    def test_references_inside_of_data_stay_references(self, any_engine: str) -> None:
        ref = skate.put(1)
        assert dask.delayed(lambda refs: skate.get(refs))([ref]).compute(scheduler=ray_dask_get) == [1]


class TestSettings:
    def test_the_default_scheduler_can_be_set_and_reset(self, local: None) -> None:
        enable_dask_on_ray()
        try:
            assert dask.delayed(os.getpid)().compute() != os.getpid()
        finally:
            disable_dask_on_ray()
        assert dask.config.get("scheduler", None) is None
        assert dask.config.get("dataframe.shuffle.method", None) is None

    def test_a_block_can_be_limited_to_it(self, local: None) -> None:
        with enable_dask_on_ray(shuffle="disk"):
            assert dask.config.get("dataframe.shuffle.method") == "disk"
            assert dask.config.get("scheduler") is ray_dask_get
        assert dask.config.get("scheduler", None) is None

    def test_task_options_come_from_the_call_the_context_and_the_graph(self, no_session: None) -> None:
        skate.init(num_cpus=2, resources={"a": 1, "b": 1, "c": 1})

        def resources() -> Any:
            assigned = skate.get_runtime_context().get_assigned_resources()
            return sorted(set(assigned) & {"a", "b", "c"})

        def using(name: str) -> dict[str, Any]:
            return {"ray_remote_args": {"resources": {name: 1}}}

        plain = dask.delayed(resources)()
        with dask.annotate(**using("a")):
            annotated = dask.delayed(resources)()
        run = {"scheduler": ray_dask_get, "optimize_graph": False}
        assert plain.compute(**run) == []
        assert plain.compute(**run, **using("c")) == ["c"]
        assert annotated.compute(**run, **using("c")) == ["a"]
        with dask.annotate(**using("b")):
            assert plain.compute(**run, **using("c")) == ["b"]

    def test_resources_by_themselves_are_refused(self, local: None) -> None:
        with pytest.raises(ValueError, match="ray_remote_args"):
            add(1, 2).compute(scheduler=ray_dask_get, resources={"a": 1})
        with dask.annotate(resources={"a": 1}), pytest.raises(ValueError, match="ray_remote_args"):
            add(1, 2).compute(scheduler=ray_dask_get, optimize_graph=False)

    def test_without_dask_the_error_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "dask"]:
            monkeypatch.setitem(sys.modules, name, None)
        for name in [name for name in sys.modules if name.startswith("skate.util.dask")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(ImportError, match="pip install"):
            __import__("skate.util.dask")


class TestCallbacks:
    def test_are_active_inside_of_the_block_only(self) -> None:
        assert not RayDaskCallback.ray_active
        with RayDaskCallback():
            assert RayDaskCallback.ray_active
        assert not RayDaskCallback.ray_active

    def test_a_presubmit_hook_can_stand_in_for_the_task(self, any_engine: str) -> None:
        class StandIn(RayDaskCallback):
            def _ray_presubmit(self, task: Any, key: Any, deps: Any) -> int:
                return 0

            def _ray_postsubmit(self, task: Any, key: Any, deps: Any, object_ref: Any) -> None:
                pytest.fail("no task was submitted")

        with StandIn():
            assert add(2, 3).compute(scheduler=ray_dask_get) == 0

    def test_hooks_see_every_task_and_the_end(self, any_engine: str) -> None:
        seen: list[Any] = []

        class Watch(RayDaskCallback):
            def _ray_presubmit(self, task: Any, key: Any, deps: Any) -> None:
                seen.append(("pre", len(deps)))

            def _ray_postsubmit(self, task: Any, key: Any, deps: Any, object_ref: Any) -> None:
                seen.append(("post", skate.get(object_ref)))

            def _ray_postsubmit_all(self, object_refs: Any, dsk: Any) -> None:
                seen.append(("all", skate.get(list(object_refs)), len(dsk)))

            def _ray_finish(self, result: Any) -> None:
                seen.append(("finish", result))

        graph = {"a": (inc, 1), "b": (inc, "a")}
        with Watch():
            ray_dask_get(graph, ["b"])
        assert seen == [("pre", 0), ("post", 2), ("pre", 1), ("post", 3), ("all", [3], 2), ("finish", (3,))]

    def test_a_posttask_hook_gets_what_the_pretask_hook_of_the_same_callback_returned(
        self, any_engine: str
    ) -> None:
        log = Log.remote()

        class Both(RayDaskCallback):
            def __init__(self, name: str) -> None:
                self.name = name

            def _ray_pretask(self, key: Any, object_refs: Any) -> str:
                return f"{self.name} {key}"

            def _ray_posttask(self, key: Any, result: Any, pre_state: Any) -> None:
                skate.get(log.append.remote((result, pre_state)))

        class PreOnly(RayDaskCallback):
            def _ray_pretask(self, key: Any, object_refs: Any) -> str:
                return "for nobody"

        class PostOnly(RayDaskCallback):
            def _ray_posttask(self, key: Any, result: Any, pre_state: Any) -> None:
                skate.get(log.append.remote((result, pre_state)))

        with Both("one"), PreOnly(), PostOnly(), Both("two"):
            assert ray_dask_get({"a": (inc, 1)}, "a") == 2
        found = skate.get(log.items.remote())
        assert sorted(found, key=str) == [(2, "one a"), (2, "two a"), (2, None)]

    def test_a_pretask_hook_gets_references_to_what_the_task_needs(self, any_engine: str) -> None:
        log = Log.remote()

        class Watch(RayDaskCallback):
            def _ray_pretask(self, key: Any, object_refs: Any) -> None:
                skate.get(log.append.remote((key, [skate.get(ref) for ref in object_refs])))

        with Watch():
            ray_dask_get({"a": (inc, 1), "b": (inc, "a")}, "b")
        assert skate.get(log.items.remote()) == [("a", []), ("b", [2])]

    def test_callbacks_can_be_given_to_one_call(self, any_engine: str) -> None:
        count = Counter.remote()
        callback = RayDaskCallback(ray_postsubmit=lambda *_: count.increment.remote())
        add(1, 2).compute(scheduler=ray_dask_get, ray_callbacks=[callback])
        add(1, 2).compute(scheduler=ray_dask_get)
        assert skate.get(count.read.remote()) == 1
        with pytest.raises(TypeError, match="ray_callbacks"):
            add(1, 2).compute(scheduler=ray_dask_get, ray_callbacks=[3])

    def test_a_bar_shows_the_progress(self, local: None, monkeypatch: pytest.MonkeyPatch) -> None:
        views: list[Any] = []
        monkeypatch.setattr("skate._api.progress.show", views.append)
        with ProgressBarCallback():
            assert dask.compute(*(add(x, 1) for x in range(5)), scheduler=ray_dask_get) == (1, 2, 3, 4, 5)
        add(1, 2).compute(scheduler=ray_dask_get, _ray_enable_progress_bar=True)
        assert [view().bar.text() for view in views] == ["5 of 5 tasks", "1 of 1 tasks"]

    def test_dask_has_its_own_callbacks_too(self, local: None, capsys: pytest.CaptureFixture[str]) -> None:
        done: list[Any] = []
        with ProgressBar(), dask.callbacks.Callback(posttask=lambda key, *_: done.append(key)):
            ray_dask_get({"a": (inc, 1), "b": (inc, "a")}, "b")
        assert done == ["a", "b"]
        assert "100% Completed" in capsys.readouterr().out


@pytest.fixture(autouse=True)
def no_setting_left() -> Iterator[None]:
    yield
    assert dask.config.get("scheduler", None) is None


def test_the_package_works_on_arrays_of_any_kind(any_engine: str) -> None:
    rng = np.random.default_rng(0)
    data = rng.random((40, 40))
    x = da.from_array(data, chunks=(10, 20))
    found = (x @ x.T).mean(axis=0).compute(scheduler=ray_dask_get)
    np.testing.assert_allclose(found, (data @ data.T).mean(axis=0))
