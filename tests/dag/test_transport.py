"""Tensors on their way through a compiled graph."""

from __future__ import annotations

from typing import Any

import pytest

import skate
from skate.dag import InputNode
from skate.dag._transport import TensorTransport, move_tensors
from skate.exceptions import RayTaskError

torch = pytest.importorskip("torch")


@skate.remote(num_cpus=0)
class Worker:
    def device(self, tensor: Any) -> str:
        return str(tensor.device)

    def make(self, size: int) -> Any:
        return torch.ones(size)


def test_unknown_transports_and_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="Unknown tensor transport 'pigeon'"):
        TensorTransport("pigeon")
    with pytest.raises(ValueError, match="Invalid device 'tpu'"):
        TensorTransport("auto", "tpu")
    assert TensorTransport(device="gpu").device == "cuda"


def test_tensors_are_moved_within_containers() -> None:
    value = {"a": [torch.ones(1), 2], "b": (torch.ones(1),)}
    result = move_tensors(value, "meta")
    assert result["a"][0].device.type == "meta"
    assert result["a"][1] == 2
    assert result["b"][0].device.type == "meta"
    assert move_tensors(value, "default") is value


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("device", ["default", "cpu"])
def test_tensors_arrive_on_the_device_asked_for(device: str) -> None:
    sender, receiver = Worker.remote(), Worker.remote()
    with InputNode() as size:
        graph = receiver.device.bind(sender.make.bind(size).with_tensor_transport(device=device))
        compiled = graph.experimental_compile()
    assert skate.get(compiled.execute(3)) == "cpu"


@pytest.mark.usefixtures("session")
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_an_error() -> None:
    worker = Worker.remote()
    with InputNode() as value:
        arriving = worker.device.bind(value.with_tensor_transport(device="cuda")).experimental_compile()
    with pytest.raises(RayTaskError, match="No CUDA GPUs are available"):
        skate.get(arriving.execute(torch.ones(1)))
    with InputNode() as size:
        leaving = worker.make.bind(size).with_tensor_transport(device="cuda").experimental_compile()
    with pytest.raises(RayTaskError, match="No CUDA GPUs are available"):
        skate.get(leaving.execute(1))
