"""Experiments on a cluster: where trials are placed, nodes that die, programs that end early, and storage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, ClassVar

import pytest

import skate
from skate import tune
from tests.contract.support import eventually
from tests.engine.ray.test_node_death import FAR_NODE, QUICK
from tests.plugins.ray_clusters import THREE_NODES, Clusters, cluster

Fit = Callable[..., tune.ResultGrid]


@contextmanager
def session(address: str) -> Iterator[None]:
    """Connect to a cluster; leave it before it ends."""
    skate.init(address, engine="ray", preflight="off")
    try:
        yield
    finally:
        skate.shutdown()


@pytest.fixture
def three_nodes(clusters: Clusters) -> str:
    """The address of a cluster with two CPUs, one and one."""
    return clusters.address(*THREE_NODES)


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    def go(trainable: Any, values: list[int], resources: Any, **options: Any) -> tune.ResultGrid:
        return tune.Tuner(
            tune.with_resources(trainable, resources),
            param_space={"x": tune.grid_search(values)},
            run_config=tune.RunConfig(storage_path=str(tmp_path / "disk"), verbose=0, **options),
        ).fit()

    return go


def where(config: dict[str, Any]) -> dict[str, Any]:
    return {"x": config["x"], "node": skate.get_runtime_context().get_node_id()}


def together(*bundles: dict[str, float]) -> tune.PlacementGroupFactory:
    return tune.PlacementGroupFactory(list(bundles), strategy="STRICT_PACK")


class TestPlacement:
    @pytest.mark.parametrize(
        "resources", [{"cpu": 2}, together({"CPU": 1}, {"CPU": 1})], ids=["one", "group"]
    )
    def test_trials_wait_for_the_only_node_that_has_room(
        self, three_nodes: str, fit: Fit, resources: Any
    ) -> None:
        with session(three_nodes):
            results = fit(where, [1, 2, 3], resources)
        assert [result.metrics["x"] for result in results] == [1, 2, 3]
        assert len({result.metrics["node"] for result in results}) == 1

    def test_a_bundle_that_no_node_has_room_for_fails_its_trial(self, three_nodes: str, fit: Fit) -> None:
        with session(three_nodes):
            (error,) = fit(where, [1], {"cpu": 3}).errors
        assert "can never start: the trial needs {'CPU': 3.0} on one node, but the nodes have [" in str(error)

    def test_an_idle_worker_makes_room_for_one_that_waits(
        self, three_nodes: str, fit: Fit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("skate.tune._loop.worker_pool._STALLED_S", 1.0)
        # As if the trials had been placed in the worst way: nothing is known about the nodes.
        monkeypatch.setattr("skate.tune._loop.capacity.can_place", lambda workers, nodes: True)
        with session(three_nodes):
            assert fit(where, [1, 2], {"cpu": 2}).num_terminated == 2


class KillNode(tune.Callback):
    """Kills the node of a trial after its second step."""

    running: ClassVar[Any]  # the cluster, which cannot be pickled with the callback
    killed: str | None = None

    def on_trial_result(self, result: dict[str, Any], **info: Any) -> None:
        if self.killed is None and result["step"] == 2:
            self.killed = result["node"]
            (victim,) = (node for node in self.running.list_all_nodes() if node.node_id == self.killed)
            self.running.remove_node(victim, allow_graceful=False)


def test_a_trial_on_a_node_that_dies_resumes_on_another(fit: Fit) -> None:
    def function(config: dict[str, Any]) -> None:
        checkpoint = tune.get_checkpoint()
        first = 1
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                first = 1 + int(Path(folder, "step").read_text(encoding="utf-8"))
        for step in range(first, 4):
            if first == 1 and step == 3:
                time.sleep(600)  # a worker outlives its node for a moment
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "step").write_text(str(step), encoding="utf-8")
                node = skate.get_runtime_context().get_node_id()
                metrics = {"first": first, "step": step, "node": node}
                tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))

    failures = tune.FailureConfig(max_failures=1)
    kills = KillNode()
    with (
        cluster([{"num_cpus": 1, "_system_config": QUICK}, FAR_NODE, FAR_NODE]) as running,
        session(running.address),
    ):
        KillNode.running = running
        (result,) = fit(function, [0], {"cpu": 1, "far": 1}, callbacks=[kills], failure_config=failures)
    assert result.error is None
    assert (result.metrics["first"], result.metrics["step"]) == (3, 3)
    assert result.metrics["node"] != kills.killed is not None


PROGRAM = """
    import sys, time
    from pathlib import Path
    import skate
    from skate import tune

    def function(config):
        folder = Path(sys.argv[1])
        tune.report({"x": config["x"]})
        if config["x"] and not (folder / "continue").exists():
            (folder / f"waits-{config['x']}").touch()
            time.sleep(600)

    if __name__ == "__main__":
        folder = Path(sys.argv[1])
        skate.init(preflight="off")
        if tune.Tuner.can_restore(folder / "experiment"):
            tuner = tune.Tuner.restore(str(folder / "experiment"), function)
        else:
            run = tune.RunConfig(name="experiment", storage_path=str(folder), verbose=0)
            tuner = tune.Tuner(function, param_space={"x": tune.grid_search([0, 1, 2])}, run_config=run)
        results = tuner.fit()
        print([result.metrics["x"] for result in results], results.num_errors)
"""


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_a_program_that_ends_early_leaves_no_worker_and_is_restored(
    three_nodes: str, tmp_path: Path, way: signal.Signals
) -> None:
    program = tmp_path / "program.py"
    # The folder is in the text: workers have other arguments.
    program.write_text(dedent(PROGRAM).replace("sys.argv[1]", repr(str(tmp_path))), encoding="utf-8")
    environment = {**os.environ, "SKATE_ENGINE": "ray", "SKATE_ADDRESS": three_nodes}
    first = subprocess.Popen(
        [sys.executable, str(program)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    eventually(lambda: len(list(tmp_path.glob("waits-*"))) == 2)
    first.send_signal(way)
    _, errors = first.communicate(timeout=60)
    assert first.returncode != 0
    assert (b"KeyboardInterrupt" in errors) is (way is signal.SIGINT)
    with session(three_nodes):
        eventually(lambda: skate.available_resources().get("CPU") == skate.cluster_resources()["CPU"])
    (tmp_path / "continue").touch()
    second = subprocess.run(
        [sys.executable, str(program)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )
    assert second.stdout.splitlines()[-1] == "[0, 1, 2] 0"


@contextmanager
def node_with_a_disk_of_its_own(address: str, folder: Path) -> Iterator[None]:
    """Start a node of a cluster on which a folder is another, empty one."""
    apart = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets no process have mounts of its own")
    ray = str(Path(sys.executable).with_name("ray"))
    start = [ray, "start", "--block", "--address", address, "--num-cpus", "1", "--resources", '{"far": 1}']
    mount = ["sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
    node = subprocess.Popen([*apart, *mount, *start], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        node.terminate()
        node.wait()


def test_storage_that_the_nodes_do_not_share_is_refused(
    fit: Fit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with (
        cluster([{"num_cpus": 1}]) as running,
        node_with_a_disk_of_its_own(running.address, disk),
        session(running.address),
    ):
        eventually(lambda: "far" in skate.cluster_resources())
        for without_params in ("0", "1"):
            monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", without_params)
            with pytest.raises(tune.TuneError, match=r"disk/\S+ does not exist on .* must share the folder"):
                fit(where, [0, 1], {"far": 1})
