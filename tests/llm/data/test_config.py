"""Configurations of processors and stages."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import ValidationError

from skate.data.llm import (
    ChatTemplateStageConfig,
    HttpRequestProcessorConfig,
    PrepareMultimodalStageConfig,
    ProcessorConfig,
    ServeDeploymentProcessorConfig,
    SGLangEngineProcessorConfig,
    _config,
    build_llm_processor,
    build_processor,
    vLLMEngineProcessorConfig,
)
from skate.data.llm._engine_worker import _engine_arguments


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (vLLMEngineProcessorConfig, {"model_sorce": "m"}, "model_source"),
        (vLLMEngineProcessorConfig, {"model_source": "m", "task_type": "classify"}, "do not support"),
        (vLLMEngineProcessorConfig, {"model_source": "m", "llm_engine": "vlm"}, "vLLM"),
        (SGLangEngineProcessorConfig, {"model_source": "m", "task_type": "embed"}, "do not support"),
        (vLLMEngineProcessorConfig, {"model_source": "s3://m"}, "local folders"),
        (vLLMEngineProcessorConfig, {"model_source": "m", "prepare_multimodal_stage": True}, "text only"),
        (vLLMEngineProcessorConfig, {"model_source": "m", "tokenize_stage": 3}, "must be a bool"),
        (vLLMEngineProcessorConfig, {"model_source": "m", "tokenize_stage": {"model": "x"}}, "model_source"),
        (
            vLLMEngineProcessorConfig,
            {
                "model_source": "m",
                "tokenize_stage": {"model_source": "x"},
                "detokenize_stage": {"model_source": "y"},
            },
            "several tokenizers",
        ),
        (
            vLLMEngineProcessorConfig,
            {"model_source": "m", "placement_group_config": {"bundles": [{"CPU": 1}] * 2}},
            "one machine",
        ),
        (ProcessorConfig, {"concurrency": 0}, "positive integer"),
        (ProcessorConfig, {"concurrency": (3, 2)}, "minimum <= maximum"),
        (HttpRequestProcessorConfig, {"url": "localhost"}, "url"),
        (HttpRequestProcessorConfig, {"url": "http://x", "http_request_stage": False}, "enable it"),
        (ServeDeploymentProcessorConfig, {"deployment_name": "d", "app": "a"}, "app_name"),
    ],
)
def test_wrong_fields_are_refused_with_a_remedy(kind: Any, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        kind(**fields)


def test_stages_have_short_forms() -> None:
    config = vLLMEngineProcessorConfig(
        model_source="m",
        chat_template_stage=ChatTemplateStageConfig(model_source="t"),
        tokenize_stage={"model_source": "t"},
        detokenize_stage=False,
        prepare_multimodal_stage=PrepareMultimodalStageConfig(enabled=False),
    )
    assert config.tokenizer_source == "t"
    assert not config.detokenize_stage.enabled
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ValidationError, match="frozen"):
        config.batch_size = 3


def test_a_bundle_becomes_resources_of_the_actors() -> None:
    config = vLLMEngineProcessorConfig(
        model_source="m", placement_group_config={"bundle_per_worker": {"CPU": 2, "disk": 1}}
    )
    assert config.actor_options["num_cpus"] == 2
    assert config.actor_options["resources"] == {"disk": 1}


def test_the_fields_of_a_stage_replace_those_of_the_processor() -> None:
    config = HttpRequestProcessorConfig(
        url="http://x", http_request_stage={"batch_size": 3, "concurrency": (1, 2), "num_cpus": 0.5}
    )
    assert config.batch_size == 3
    assert config.get_concurrency() == {"min_size": 1, "max_size": 2}
    assert config.actor_options["num_cpus"] == 0.5


def test_processors_describe_their_stages(caplog: pytest.LogCaptureFixture) -> None:
    processor = build_llm_processor(
        SGLangEngineProcessorConfig(model_source="m"), builder_kwargs={"chat_template_kwargs": {"a": 1}}
    )
    assert processor.list_stage_names() == ["SGLangEngineStage"]
    stage = processor.get_stage_by_name("SGLangEngineStage")
    assert stage.rows_per_call == 32 * 8
    assert stage.arguments["chat_template_kwargs"] == {"a": 1}
    with caplog.at_level("INFO", logger="skate.data.llm"):
        processor.log_input_column_names()
    assert "messages" in caplog.text
    with pytest.raises(ValueError, match="Did you mean 'SGLangEngineStage'"):
        processor.get_stage_by_name("SGLangStage")


def test_wrong_arguments_of_build_processor_are_refused() -> None:
    with pytest.raises(TypeError, match="configuration of a processor"):
        build_processor(ProcessorConfig())
    with pytest.raises(ValueError, match="Did you mean 'chat_template_kwargs'"):
        build_processor(
            vLLMEngineProcessorConfig(model_source="m"), builder_kwargs={"chat_template_kwarg": {}}
        )


def test_actors_get_the_gpus_that_their_engine_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(_config, "is_vllm_installed", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    kwargs = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    for engine, expected in (("auto", 4), ("vLLM", 4), ("torch", 1)):
        config = vLLMEngineProcessorConfig(model_source="m", llm_engine=engine, engine_kwargs=kwargs)
        assert config.actor_options.get("num_gpus") == expected
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "num_gpus" not in vLLMEngineProcessorConfig(model_source="m").actor_options


def test_the_arguments_of_an_engine_follow_from_the_task() -> None:
    config = vLLMEngineProcessorConfig(
        model_source="m",
        task_type="embed",
        dynamic_lora_loading_path="adapters",
        engine_kwargs={"context_length": 9, "disable_radix_cache": True},
    )
    assert _engine_arguments(config) == {
        "runner": "pooling",
        "enable_lora": True,
        "max_model_len": 9,
        "enable_prefix_caching": False,
    }
