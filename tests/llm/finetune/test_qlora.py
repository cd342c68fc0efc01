"""QLoRA: an adapter on a base model in 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bitsandbytes")

import torch

from skate.llm import FinetuneConfig, finetune
from skate.llm._finetune import loop
from tests.conftest import LeakWatch
from tests.llm.finetune.models import chats, make_model
from tests.llm.finetune.test_workers import losses

Make = Callable[..., FinetuneConfig]

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def session(leak_watch: LeakWatch) -> Iterator[None]:
    with leak_watch.shared_session(num_cpus=2):
        yield


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Any]:
    model = make_model(tmp_path / "base", hidden_size=64, intermediate_size=128)
    return {"base_model": model, "adapter": "qlora", "val_set_size": 3, "num_epochs": 3}


def test_the_layers_of_the_base_have_four_bits(config: Make, keys: dict[str, Any]) -> None:
    from bitsandbytes.nn import Linear4bit

    module = loop.build_model(config(**keys), torch.device("cpu"))
    layers = [each for each in module.modules() if isinstance(each, Linear4bit)]
    assert len(layers) == 2 * 7
    assert {each.weight.dtype for each in layers} == {torch.uint8}
    assert {each.compute_dtype for each in layers} == {torch.float32}
    assert not any(each.support_avx512bf16_for_cpu for each in layers)  # packed weights have no gradients
    trained = [name for name, weight in module.named_parameters() if weight.requires_grad]
    assert len(trained) == 2 * len(layers)
    assert all("lora_" in name for name in trained)


def test_it_learns_as_on_the_whole_base(config: Make, keys: dict[str, Any], tmp_path: Path) -> None:
    result = finetune(config(output_dir=tmp_path / "four", **keys))
    plain = finetune(config(output_dir=tmp_path / "plain", **{**keys, "adapter": "lora"}))
    found = [row["eval_loss"] for row in result.history if "eval_loss" in row]
    expected = [row["eval_loss"] for row in plain.history if "eval_loss" in row]
    assert found != expected
    assert found == pytest.approx(expected, rel=0.3)
    assert found[-1] < found[0] * 0.8


def test_the_adapter_is_merged_into_the_base_as_it_was(
    config: Make, keys: dict[str, Any], tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    result = finetune(config(**keys))
    assert result.path is not None
    assert result.adapter_path is not None
    base, merged, adapter = (
        load_file(file)
        for file in (
            tmp_path / "base" / "model.safetensors",
            result.path / "model.safetensors",
            result.adapter_path / "adapter_model.safetensors",
        )
    )
    name = "model.layers.1.mlp.down_proj"
    down, up = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    expected = base[f"{name}.weight"] + up @ down * (32 / 16)
    assert (merged[f"{name}.weight"] - expected).abs().max() < 1e-5


def test_two_workers_have_the_losses_of_one_process(
    config: Make, keys: dict[str, Any], tmp_path: Path
) -> None:
    keys |= {"save_model": False, "num_epochs": 1}
    one = losses(config(chats(26), micro_batch_size=4, output_dir=tmp_path / "one", **keys))
    two = losses(config(micro_batch_size=2, num_workers=2, output_dir=tmp_path / "two", **keys))
    assert two == pytest.approx(one, abs=1e-4)
