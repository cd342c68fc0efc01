"""Values of torch and Arrow, serialized."""

from __future__ import annotations

import pytest

from skate._base.serialization import dumps, loads, serialize

torch = pytest.importorskip("torch")
pa = pytest.importorskip("pyarrow")


def test_a_function_that_knows_torch_may_say_ops() -> None:
    class Library:
        ops = "its own"

    def function() -> tuple[str, object]:
        return Library.ops, torch.ones(1).dtype

    assert loads(dumps(function))() == ("its own", torch.float32)
    assert loads(dumps(torch.ops)) is torch.ops


def test_an_arrow_table_comes_back_equal() -> None:
    table = pa.table({"a": list(range(1000)), "b": [str(i) for i in range(1000)]})
    assert loads(dumps(table)).equals(table)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_tensor_comes_back_equal_whatever_its_type(dtype: object) -> None:
    tensor = torch.ones(3, 4).to(dtype)
    back = loads(dumps(tensor))
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_a_tensor_is_kept_out_of_the_stream() -> None:
    assert len(serialize(torch.zeros(1_000_000)).stream) < 1000


def test_a_parameter_stays_a_parameter() -> None:
    back = loads(dumps(torch.nn.Parameter(torch.ones(2))))
    assert isinstance(back, torch.nn.Parameter)
    assert back.requires_grad


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(7.0).expand(1),
        torch.arange(5.0)[4:].expand(1, 1),
        torch.arange(3.0).expand(4, 3),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0).reshape(3, 4)[1:, 2],
        torch.tensor(7.0),
    ],
    ids=["one element expanded", "expanded slice", "expanded row", "transposed", "column", "no dimension"],
)
def test_a_tensor_comes_back_equal_whatever_its_strides(tensor: object) -> None:
    back = loads(dumps(tensor))
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_an_empty_tensor_comes_back_with_its_shape() -> None:
    assert loads(dumps(torch.empty(0, 5))).shape == (0, 5)


def test_a_module_comes_back_with_equal_weights() -> None:
    module = torch.nn.Linear(3, 2)
    back = loads(dumps(module))
    assert torch.equal(back.weight, module.weight)
