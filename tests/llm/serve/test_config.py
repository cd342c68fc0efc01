"""Configuration, engines, builders and names."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest

from skate.serve.llm import (
    CloudMirrorConfig,
    LLMConfig,
    LLMServer,
    LLMServingArgs,
    LoraConfig,
    ModelLoadingConfig,
    _engines,
    build_dp_deployment,
    build_llm_deployment,
    build_openai_app,
)
from skate.serve.llm._engines import start_engine
from skate.serve.llm._protocol.base import RequestError
from skate.serve.llm._server import placement
from skate.serve.llm.deployment import DPServer
from skate.serve.llm.openai_api_models import ChatCompletionRequest
from tests.llm.serve import scripted

CPU: dict[str, Any] = {"accelerator_config": {"kind": "cpu"}}
# Names of `ray.serve.llm` 2.60.
NAMES = {
    "skate.serve.llm": "LLMConfig LLMServingArgs ModelLoadingConfig CloudMirrorConfig LoraConfig build_llm_deployment "
    "build_openai_app build_pd_openai_app build_dp_deployment build_dp_openai_app LLMServer",
    "skate.serve.llm.deployment": "LLMServer PDDecodeServer PDPrefillServer DPServer",
    "skate.serve.llm.ingress": "OpenAiIngress make_fastapi_ingress",
    "skate.serve.llm.request_router": "PrefixCacheAffinityRouter KVAwareRouter",
    "skate.serve.llm.openai_api_models": "ChatCompletionRequest ChatCompletionResponse ChatCompletionStreamResponse "
    "CompletionRequest CompletionResponse CompletionStreamResponse EmbeddingRequest EmbeddingResponse "
    "TranscriptionRequest TranscriptionResponse TranscriptionStreamResponse ErrorResponse",
}
METHODS = (
    "chat completions embeddings transcriptions score tokenize detokenize check_health sleep wakeup is_sleeping pause "
    "resume is_paused reset_prefix_cache start_profile stop_profile collective_rpc llm_config get_deployment_options"
)
FIELDS = {
    LLMConfig: "runtime_env model_loading_config llm_engine engine_kwargs accelerator_type accelerator_config "
    "placement_group_config lora_config deployment_config server_cls experimental_configs log_engine_metrics "
    "callback_config",
    LLMServingArgs: "llm_configs ingress_cls_config ingress_deployment_config",
    ModelLoadingConfig: "model_id model_source tokenizer_source",
    CloudMirrorConfig: "bucket_uri extra_files",
    LoraConfig: "dynamic_lora_loading_path max_num_adapters_per_replica download_timeout_s max_download_tries",
}


def make(**fields: Any) -> LLMConfig:
    return LLMConfig(**{"model_loading_config": {"model_id": "tiny"}, **fields})


@pytest.mark.parametrize("module", NAMES)
def test_rays_names_exist(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_rays_methods_and_fields_exist() -> None:
    assert [name for name in METHODS.split() if not hasattr(LLMServer, name)] == []
    for model, names in FIELDS.items():
        assert set(names.split()) == set(model.model_fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engine_kwarg": {}}, "Did you mean 'engine_kwargs'"),
        ({"model_loading_config": {"model": "x"}}, "Did you mean 'model_id'"),
        ({"model_loading_config": {"model_id": ""}}, "model_id"),
        ({"lora_config": {"dynamic_lora_path": "x"}}, "Did you mean 'dynamic_lora_loading_path'"),
        ({"lora_config": {"dynamic_lora_loading_path": "ftp://x"}}, "local folder"),
        ({"deployment_config": {"num_replica": 1}}, "Did you mean 'num_replicas'"),
        ({"deployment_config": {"placement_group_bundles": []}}, "placement_group_config"),
        ({"accelerator_type": "H1000"}, "Did you mean 'H100'"),
        ({"accelerator_type": "H100", **CPU}, "CPU-only"),
        ({"accelerator_type": "H100", "placement_group_config": {"bundles": [{"CPU": 1}]}}, "CPU-only"),
        ({"accelerator_type": "H100", "placement_group_config": {"bundles": []}}, "CPU-only"),
        ({"accelerator_type": "TPU-V4", "accelerator_config": {"kind": "gpu"}}, "is a type of TPU"),
        ({"placement_group_config": {"bundle": []}}, "Did you mean 'bundles'"),
        ({"placement_group_config": {"bundles": [], "bundle_per_worker": {}}}, "remove one of them"),
        ({"experimental_configs": {"num_router_replicas": 1}}, "num_ingress_replicas"),
        ({"engine_kwargs": {"disable_log_stats": True}}, "log_engine_metrics"),
        ({"server_cls": "no.such:thing"}, "cannot be imported"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**fields)


def test_the_kind_of_accelerator_follows_from_what_is_given() -> None:
    assert make().accelerator_kind is None
    assert make(accelerator_type="H100").accelerator_kind == "gpu"
    assert make(placement_group_config={"bundle_per_worker": {"GPU": 1}}).accelerator_kind == "gpu"
    assert make(placement_group_config={"bundles": [{"CPU": 2}]}).accelerator_kind == "cpu"


def test_replicas_get_the_resources_that_the_model_needs() -> None:
    options = LLMServer.get_deployment_options
    two = make(accelerator_type="H100", engine_kwargs={"tensor_parallel_size": 2})
    assert options(two)["ray_actor_options"] == {"num_gpus": 2, "accelerator_type": "H100"}
    bundled = make(placement_group_config={"bundles": [{"CPU": 2, "GPU": 1}]})
    assert options(bundled)["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 1}
    environment = make(runtime_env={"env_vars": {"A": "1"}}, **CPU)
    assert options(environment)["ray_actor_options"] == {"runtime_env": {"env_vars": {"A": "1"}}}
    scaled = make(deployment_config={"autoscaling_config": {"max_replicas": 2}}, **CPU)
    assert options(scaled)["autoscaling_config"]["target_ongoing_requests"] == 64
    with pytest.raises(ValueError, match="TPUs"):
        options(make(accelerator_type="TPU-V4"))


def test_a_configuration_can_be_read_from_yaml(tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text("model_loading_config:\n  model_id: tiny\nllm_engine: torch\n")
    config = LLMConfig.from_file(str(file))
    assert (config.model_id, config.llm_engine) == ("tiny", "torch")
    assert LLMServingArgs(llm_configs=[str(file)]).llm_configs == [config]
    assert pickle.loads(pickle.dumps(config)) == config


def test_models_have_different_names() -> None:
    with pytest.raises(ValueError, match="same `model_id`, 'tiny'"):
        build_openai_app({"llm_configs": [make(), make()]})
    with pytest.raises(ValueError, match="llm_configs"):
        build_openai_app({"llm_configs": []})


def test_the_engine_is_chosen_by_name_path_or_function() -> None:
    assert isinstance(start_engine(make(llm_engine=scripted.start)), scripted.ScriptedEngine)
    path = f"{scripted.__name__}:start"
    assert isinstance(start_engine(make(llm_engine=path)), scripted.ScriptedEngine)
    with pytest.raises(ValueError, match="Did you mean 'torch'"):
        start_engine(make(llm_engine="troch"))


def test_an_engine_is_loaded_with_the_options_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(_engines, "load_engine", lambda *given, **options: calls.append((*given, options)))
    start_engine(make())
    start_engine(
        make(
            llm_engine="vLLM",
            engine_kwargs={"max_model_len": 9, "data_parallel_size": 2, "max_loras": 20},
            lora_config={"max_num_adapters_per_replica": 8},
        )
    )
    assert calls == [
        ("tiny", {"engine": "auto", "tokenizer": None}),
        (
            "tiny",
            {
                "engine": "vLLM",
                "tokenizer": None,
                "max_model_len": 9,
                "enable_lora": True,
                "max_loras": 20,
                "max_cpu_loras": 20,
            },
        ),
    ]


@pytest.mark.parametrize(
    ("arguments", "gpus"), [({}, 1), ({"device": "cpu"}, 0), ({"quantization": "int4"}, 0)], ids=str
)
def test_replicas_get_a_gpu_unless_the_model_runs_on_the_cpu(
    arguments: dict[str, str], gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement.skate, "cluster_resources", lambda: {"GPU": 4.0})
    options = LLMServer.get_deployment_options(make(engine_kwargs=arguments))
    assert options.get("ray_actor_options", {}).get("num_gpus", 0) == gpus


def test_deployments_are_named_after_their_models() -> None:
    config = make(model_loading_config={"model_id": "org/name-1.5b"}, **CPU)
    assert build_llm_deployment(config)._bound_deployment.name == "LLMServer:org--name-1_5b"
    assert config.get_serve_options(name_prefix="vLLM:")["name"] == "vLLM:org--name-1_5b"


def test_data_parallelism_is_a_replica_for_each_rank() -> None:
    config = make(engine_kwargs={"data_parallel_size": 3}, **CPU)
    assert build_dp_deployment(config)._bound_deployment.num_replicas == 3
    with pytest.raises(ValueError, match="data_parallel_size"):
        DPServer.get_deployment_options(make(deployment_config={"num_replicas": 2}, **CPU))
    with pytest.raises(NotImplementedError, match="expert"):
        DPServer.get_deployment_options(make(engine_kwargs={"enable_expert_parallel": True}, **CPU))


def test_errors_of_requests_survive_pickling() -> None:
    error = RequestError("no", 429, param="p", code="c", retry_after=3)
    copy = pickle.loads(pickle.dumps(error))
    assert copy.response == error.response
    assert (copy.status, copy.retry_after) == (429, 3)


def test_the_path_of_a_wrong_field_is_named() -> None:
    with pytest.raises(RequestError) as caught:
        ChatCompletionRequest.parse({"messages": [{"role": "user", "content": "x", "nam": "y"}]})
    assert caught.value.param == "messages[0].nam"
    assert "Did you mean 'name'" in caught.value.message
