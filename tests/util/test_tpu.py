"""TPU facts and slices, on a machine without TPUs: the resource "TPU" is declared."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import skate
from skate.util import tpu
from skate.util._tpu_topology import check_topology, pod_type

LABELS = {"ray.io/tpu-pod-type": "v6e-4", "ray.io/tpu-slice-name": "mine", "ray.io/tpu-worker-id": "0"}


@pytest.fixture(scope="module")
def session(leak_watch: Any) -> Iterator[None]:
    """A machine with four chips."""
    skate.init(num_cpus=4, resources={"TPU": 4}, labels=LABELS)
    leak_watch.session_is_shared = True
    yield
    skate.shutdown()
    leak_watch.session_is_shared = False


@pytest.mark.parametrize(
    ("kind", "version"), [("TPU-V6E", "v6e"), ("tpu7x", "v7x"), ("v5litepod", "v5litepod"), ("TPU-V4", "v4")]
)
def test_an_accelerator_type_has_a_version(kind: str, version: str) -> None:
    assert tpu.get_tpu_version_from_type(kind) == version


@pytest.mark.parametrize("kind", ["H100", "TPU-V9", "tpu-7x", ""])
def test_an_unknown_accelerator_type_is_refused_with_the_known_ones(kind: str) -> None:
    with pytest.raises(ValueError, match="v5litepod"):
        tpu.get_tpu_version_from_type(kind)


@pytest.mark.parametrize(
    ("topology", "version", "workers", "chips"),
    [("1x1", "v6e", 1, 1), ("2x4", "v6e", 1, 8), ("4x4", "v6e", 4, 4), ("2x2x2", "v4", 2, 4)],
)
def test_a_worker_gets_the_chips_of_a_host(topology: str, version: str, workers: int, chips: int) -> None:
    assert tpu.get_tpu_worker_resources(topology, version) == (workers, {"CPU": 1, "TPU": chips})


def test_resources_of_a_worker_can_be_given() -> None:
    found = tpu.get_tpu_worker_resources("2x2", "v6e", {"TPU": 1, "CPU": 2}, num_slices=2)
    assert found == (8, {"TPU": 1, "CPU": 2})
    found = tpu.get_tpu_worker_resources("2x4", "v6e", chips_per_vm=4, tpu_resource_per_chip=2)
    assert found == (2, {"CPU": 1, "TPU": 8})


@pytest.mark.parametrize(
    "settings",
    [
        {"resources_per_worker": {"TPU": 3}},
        {"resources_per_worker": {"TPU": 0}},
        {"chips_per_vm": 0},
        {"tpu_resource_per_chip": 0},
        {"topology": "2*2"},
    ],
)
def test_workers_that_do_not_fill_a_slice_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        tpu.get_tpu_worker_resources(**{"topology": "2x2", "accelerator_type": "v6e", **settings})


def test_workers_are_counted_in_slices() -> None:
    assert tpu.get_tpu_num_slices_for_workers("4x4", "v6e", 4) == 1
    assert tpu.get_tpu_num_slices_for_workers("4x4", "v6e", 5) == 2
    assert tpu.get_tpu_num_slices_for_workers("", "v6e", 5) == 1
    assert tpu.get_tpu_num_slices_for_workers("2x2", "v6e", 5, {"TPU": 3}) == 1


def test_a_chip_can_count_as_several_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TPU_RESOURCE_PER_CHIP", "2")
    assert tpu.get_tpu_worker_resources("2x2x1", "v7x")[1]["TPU"] == 8
    monkeypatch.setenv("RAY_TPU_RESOURCE_PER_CHIP", "many")
    with pytest.raises(ValueError, match="'many'"):
        tpu.get_tpu_worker_resources("2x2x1", "v7x")


def test_topologies_belong_to_versions() -> None:
    for version, topology in (("v6e", "2x8"), ("v4", "4x4x8"), ("v5p", "16x16x24"), ("v3", "32x32")):
        check_topology(version, topology)
    for version, topology in (("v6e", "2x2x1"), ("v4", "16x4x4"), ("v4", "3x3x3"), ("v7x", "4x4x12")):
        with pytest.raises(ValueError, match=topology):
            check_topology(version, topology)
    assert pod_type("2x2x2", "v5p") == "v5p-16"


def test_the_pod_is_known_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TPU_NAME", "TPU_WORKER_HOSTNAMES", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.delenv(name, raising=False)
    assert tpu.get_current_pod_name() is None
    assert tpu.get_current_pod_worker_count() is None
    monkeypatch.setenv("TPU_NAME", "pod")
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "one,two,three")
    assert tpu.get_current_pod_name() == "pod"
    assert tpu.get_current_pod_worker_count() == 3
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-16")
    monkeypatch.setattr(tpu, "get_num_tpu_chips_on_node", lambda: 4)
    assert tpu.get_current_pod_worker_count() == 2


def test_chips_are_counted_by_their_device_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/accel0", "/dev/accel1"])
    assert tpu.get_num_tpu_chips_on_node() == 2
    for group, vendor in (("5", "0x1ae0"), ("6", "0x10de")):
        (tmp_path / "vfio" / group).mkdir(parents=True)
        device = tmp_path / "groups" / group / "devices" / "0000"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    roots = {"/dev/vfio": tmp_path / "vfio", "/sys/kernel/iommu_groups": tmp_path / "groups"}
    monkeypatch.setattr(tpu, "Path", lambda root, *parts: roots[root].joinpath(*parts))
    monkeypatch.setattr("glob.glob", lambda pattern: [])
    assert tpu.get_num_tpu_chips_on_node() == 1


def test_slices_connect_through_environment_variables() -> None:
    variables = tpu.get_tpu_coordinator_env_vars("host", 2, 1)
    assert variables == {
        "MEGASCALE_COORDINATOR_ADDRESS": "host",
        "MEGASCALE_PORT": "8081",
        "MEGASCALE_NUM_SLICES": "2",
        "MEGASCALE_SLICE_ID": "1",
    }


def test_nodes_are_found_by_the_name_of_their_slice() -> None:
    nodes = [
        {"NodeID": "a", "Alive": True, "Labels": {"ray.io/tpu-slice-name": "mine"}},
        {"NodeID": "b", "Alive": False, "Labels": {"ray.io/tpu-slice-name": "mine"}},
        {"NodeID": "c", "Alive": True, "Labels": {}},
    ]
    assert tpu.get_tpu_nodes_for_slice("mine", nodes) == nodes[:1]
    assert tpu.get_tpu_slice_name_from_node(nodes[2]) is None


def test_a_slice_of_one_host_is_reserved_and_used(session: None) -> None:
    assert tpu.get_num_tpu_slices("2x2", "TPU-V6E") == tpu.get_num_ready_tpu_slices("2x2", "TPU-V6E") == 1
    assert tpu.get_num_tpu_slices("2x4", "TPU-V6E") == 0
    assert [node["Alive"] for node in tpu.get_tpu_nodes_for_slice("mine")] == [True]

    handle = tpu.slice_placement_group("2x2", "v6e", name="slice")
    assert (handle.num_hosts, handle.num_bundles, handle.chips_per_host, handle.devices_per_host) == (
        1,
        1,
        4,
        4,
    )
    assert (handle.topology, handle.accelerator_version, handle.num_slices) == ("2x2", "v6e", 1)
    assert handle.bundle_resources == {"CPU": 1, "TPU": 4}

    @skate.remote
    def add(left: int, *, right: int) -> tuple[int, dict[str, float]]:
        return left + right, skate.get_runtime_context().get_assigned_resources()

    ((total, resources),) = skate.get(tpu.run_on_slice(add, 1, tpu_slice=handle, right=2))
    assert (total, resources["TPU"]) == (3, 4)
    assert tpu.get_num_tpu_slices("2x2", "v6e") == 1
    assert tpu.get_num_ready_tpu_slices("2x2", "v6e") == 0
    with pytest.raises(TimeoutError, match="available_resources"):
        tpu.run_on_slice(add, topology="2x2", accelerator_version="v6e", pg_ready_timeout_s=0)
    handle.shutdown()
    handle.shutdown()
    with pytest.raises(ValueError, match="shut down"):
        tpu.run_on_slice(add, tpu_slice=handle)


def test_slices_can_have_a_placement_group_each(session: None) -> None:
    handle = tpu.slice_placement_group("1x1", "v6e", num_slices=2, pg_per_slice=True, name="each")
    assert handle.placement_group is None
    assert len(handle.slice_placement_groups) == 2

    @skate.remote
    def chips() -> float:
        return skate.get_runtime_context().get_assigned_resources()["TPU"]

    assert skate.get(tpu.run_on_slice(chips, tpu_slice=handle)) == [1, 1]
    with pytest.warns(DeprecationWarning, match="run_on_slice"):
        assert skate.get(tpu.dispatch(chips, tpu_slice=handle, slice_index=1)) == [1]
    with pytest.raises(ValueError, match="indexes 0 to 1"):
        tpu.run_on_slice(chips, tpu_slice=handle, slice_index=2)
    handle.shutdown()


def test_a_slice_over_several_hosts_says_that_one_machine_cannot_hold_it(session: None) -> None:
    with pytest.raises(NotImplementedError, match="16 chips on 4 hosts"):
        tpu.slice_placement_group("4x4", "v6e")
    with pytest.raises(NotImplementedError, match="2 hosts of 4 chips"):
        tpu.slice_placement_group("2x4", "v6e", chips_per_vm=4)
    with pytest.raises(NotImplementedError, match="slice_placement_group"):
        tpu.subslice_placement_group("2x4", "v6e")
    with pytest.raises(ValueError, match="3x3"):
        tpu.slice_placement_group("3x3", "v6e")


def test_a_slice_runs_remote_functions_alone() -> None:
    with pytest.raises(TypeError, match=r"@skate\.remote"):
        tpu.run_on_slice(print, topology="2x2", accelerator_version="v6e")
    with pytest.raises(ValueError, match="topology and accelerator_version"):
        tpu.run_on_slice(skate.remote(print))
    with pytest.raises(ValueError, match="slice_index"):
        tpu.run_on_slice(skate.remote(print), slice_index=0)


def test_the_profiler_of_jax_is_started_where_jax_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with caplog.at_level(logging.WARNING):
        tpu.init_jax_profiler()
    assert "pip install jax" in caplog.text
    started: list[int] = []
    monkeypatch.setitem(
        sys.modules, "jax", SimpleNamespace(profiler=SimpleNamespace(start_server=started.append))
    )
    monkeypatch.setenv("JAX_PROFILER_PORT", "1234")
    tpu.init_jax_profiler()
    tpu.init_jax_profiler(7)
    assert started == [1234, 7]
