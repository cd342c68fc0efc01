"""The sampling parameters that a model recommends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skate.llm._engine.model import TorchEngineConfig
from skate.llm._engine.sampling_defaults import sampling_defaults

RECOMMENDED = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "eos_token_id": 7, "max_new_tokens": 2048}


def test_the_fields_that_are_sampling_parameters_are_defaults() -> None:
    assert sampling_defaults(RECOMMENDED) == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "max_tokens": 2048,
    }
    assert sampling_defaults({"temperature": None, "top_k": -1}) == {"top_k": 0}


def test_the_model_s_recommendations_can_be_left_out_replaced_and_overridden(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"temperature": 0.2}))
    assert sampling_defaults(RECOMMENDED, "vllm") == {}
    assert sampling_defaults(RECOMMENDED, str(tmp_path)) == {"temperature": 0.2}
    assert sampling_defaults(RECOMMENDED, "vllm", {"top_p": 0.5}) == {"top_p": 0.5}
    assert sampling_defaults(RECOMMENDED, overrides={"temperature": 0})["temperature"] == 0


def test_a_folder_without_a_generation_config_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"generation_config\.json"):
        sampling_defaults({}, str(tmp_path))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("top_p", 2, "generation_config.json: top_p must be at least 0 and at most 1, got 2"),
        ("temperature", "hot", "generation_config.json: temperature must be a number, got 'hot'"),
        ("top_k", 1.5, "generation_config.json: top_k must be an integer, got 1.5"),
        ("max_new_tokens", True, "generation_config.json: max_new_tokens must be an integer, got True"),
        ("max_new_tokens", 0, "generation_config.json: max_tokens must be at least 1, got 0"),
    ],
)
def test_a_value_that_is_no_sampling_parameter_names_the_file(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        sampling_defaults({field: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"generation_config": None}, "generation_config must be 'auto', 'vllm' or a folder, got None"),
        ({"override_generation_config": "x"}, "override_generation_config must be a dict, got 'x'"),
        (
            {"override_generation_config": {"temprature": 1}},
            "override_generation_config has no field 'temprature'. Did you mean 'temperature'?",
        ),
        (
            {"override_generation_config": {"top_p": -1}},
            "override_generation_config: top_p must be at least 0 and at most 1, got -1",
        ),
    ],
)
def test_arguments_are_checked_before_the_model_is_loaded(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TorchEngineConfig.from_kwargs(kwargs)
    assert str(caught.value) == message
