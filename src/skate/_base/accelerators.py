"""Kinds of accelerators: resources that a node assigns as numbered devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# The variable that limits a vendor's runtime to the devices of a process.
DEVICE_VARIABLES = {
    "GPU": "CUDA_VISIBLE_DEVICES",
    "neuron_cores": "NEURON_RT_VISIBLE_CORES",
    "TPU": "TPU_VISIBLE_CHIPS",
    "HPU": "HABANA_VISIBLE_MODULES",
    "NPU": "ASCEND_RT_VISIBLE_DEVICES",
    "RBLN": "RBLN_DEVICES",
    "FURIOSA": "FURIOSA_DEVICES",
    "MBLT": "QBRUNTIME_VISIBLE_DEVICES",
    "TTNPU": "TT_VISIBLE_DEVICES",
}

# Kinds of which there is one accelerator type, which a node with them offers to tasks with that `accelerator_type`.
ONLY_TYPES = {"neuron_cores": "aws-neuron-core"}

# Their drivers assign a device to one process.
UNSHAREABLE = frozenset({"HPU", "RBLN", "FURIOSA", "MBLT", "TTNPU"})

# The text before each number in a vendor's variable.
_PREFIXES = {"FURIOSA": "npu:"}


def device_variables(devices: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the environment variables that limit a process to the devices of each kind in `devices`.

    >>> device_variables({"GPU": ["0", "1"], "FURIOSA": ["1"]})
    {'CUDA_VISIBLE_DEVICES': '0,1', 'FURIOSA_DEVICES': 'npu:1'}
    """
    return {
        DEVICE_VARIABLES[kind]: ",".join(_PREFIXES.get(kind, "") + device for device in chosen)
        for kind, chosen in devices.items()
        if kind in DEVICE_VARIABLES
    }
