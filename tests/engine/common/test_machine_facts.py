"""The resources that a node finds on its machine, or is given."""

from __future__ import annotations

import pytest

from skate._engine.common.machine_facts import node_labels, resources


def test_a_node_with_neuron_cores_offers_their_accelerator_type() -> None:
    total, devices = resources(1, 0, {"neuron_cores": 2}, None)
    assert total["accelerator_type:aws-neuron-core"] == 1
    assert devices == {"neuron_cores": ["0", "1"]}
    total, devices = resources(1, 0, {"neuron_cores": 0}, None)
    assert "accelerator_type:aws-neuron-core" not in total


def test_labels_of_a_node_come_from_its_variables_and_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_NODE_MARKET_TYPE", "spot")
    monkeypatch.setenv("RAY_NODE_TYPE_NAME", "small")
    monkeypatch.setenv("RAY_NODE_REGION", "us")
    monkeypatch.setenv("RAY_NODE_ZONE", "us-b")
    assert node_labels({"tier": "1", "ray.io/availability-zone": "us-c"}, {"accelerator_type:H200": 1.0}) == {
        "ray.io/market-type": "spot",
        "ray.io/node-group": "small",
        "ray.io/availability-region": "us",
        "ray.io/availability-zone": "us-c",
        "ray.io/accelerator-type": "H200",
        "tier": "1",
    }


def test_tpus_have_the_label_of_their_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-16")
    assert node_labels(None, {"TPU": 4.0}) == {"ray.io/accelerator-type": "TPU-V4"}
    assert node_labels(None, {"CPU": 4.0}) == {}
