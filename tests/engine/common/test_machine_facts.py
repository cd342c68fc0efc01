"""The resources that a node finds on its machine, or is given."""

from __future__ import annotations

from skate._engine.common.machine_facts import resources


def test_a_node_with_neuron_cores_offers_their_accelerator_type() -> None:
    total, devices = resources(1, 0, {"neuron_cores": 2}, None)
    assert total["accelerator_type:aws-neuron-core"] == 1
    assert devices == {"neuron_cores": ["0", "1"]}
    total, devices = resources(1, 0, {"neuron_cores": 0}, None)
    assert "accelerator_type:aws-neuron-core" not in total
