"""Builders of applications that serve models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from skate import serve
from skate.serve.llm._config import ConfigModel, LLMConfig
from skate.serve.llm._imports import import_object
from skate.serve.llm._ingress.ingress import OpenAiIngress
from skate.serve.llm._protocol.service import to_model_metadata
from skate.serve.llm._server.llm_server import LLMServer
from skate.serve.llm._server.placement import deployment_name

__all__ = ["IngressClsConfig", "LLMServingArgs", "build_llm_deployment", "build_openai_app"]


class IngressClsConfig(ConfigModel):
    """The class of the ingress.

    Args:
        ingress_cls: The class, or its import path. It takes the arguments of `OpenAiIngress`.
        ingress_extra_kwargs: Further arguments of the class, such as `api_keys`.
    """

    ingress_cls: type | str = OpenAiIngress
    ingress_extra_kwargs: dict[str, Any] = Field(default_factory=dict)

    @field_validator("ingress_cls")
    @classmethod
    def _load_class(cls, value: type | str) -> type:
        return import_object("ingress_cls", value) if isinstance(value, str) else value

    @field_validator("ingress_extra_kwargs", mode="before")
    @classmethod
    def _accept_none(cls, value: Any) -> Any:
        return {} if value is None else value


class LLMServingArgs(ConfigModel):
    """The configuration of an application that serves models.

    Args:
        llm_configs: The models: configurations, dictionaries of their fields, or paths of YAML files.
        ingress_cls_config: The class of the ingress, and further arguments of it.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    llm_configs: list[LLMConfig] = Field(min_length=1)
    ingress_cls_config: IngressClsConfig = Field(default_factory=IngressClsConfig)
    ingress_deployment_config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("llm_configs", mode="before")
    @classmethod
    def _load_configs(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [LLMConfig.from_file(each) if isinstance(each, str) else each for each in value]

    @model_validator(mode="after")
    def _check_ids(self) -> LLMServingArgs:
        ids = [config.model_id for config in self.llm_configs]
        for each in ids:
            if ids.count(each) > 1:
                raise ValueError(f"Two models have the `model_id` {each!r}: give each its own.")
        return self


def build_llm_deployment(
    llm_config: LLMConfig | Mapping[str, Any],
    *,
    name_prefix: str | None = None,
    bind_kwargs: dict[str, Any] | None = None,
    override_serve_options: dict[str, Any] | None = None,
    deployment_cls: type[LLMServer] | None = None,
) -> serve.Application:
    """Build the deployment of one model, which other deployments call by its handle.

    Args:
        llm_config: The configuration of the model.
        name_prefix: The beginning of the deployment's name; by default the name of its class and a colon.
        bind_kwargs: Further arguments of the class.
        override_serve_options: Options of the deployment, which replace those of the configuration.
        deployment_cls: The class; by default `server_cls` of the configuration, or `LLMServer`.

    Returns:
        The application.
    """
    config = llm_config if isinstance(llm_config, LLMConfig) else LLMConfig.model_validate(llm_config)
    kind: Any = deployment_cls or config.server_cls or LLMServer
    options = kind.get_deployment_options(config)
    options["name"] = (f"{kind.__name__}:" if name_prefix is None else name_prefix) + deployment_name(config)
    options.update(override_serve_options or {})
    made: serve.Application = serve.deployment(kind).options(**options).bind(config, **(bind_kwargs or {}))
    return made


def build_openai_app(llm_serving_args: LLMServingArgs | Mapping[str, Any]) -> serve.Application:
    """Build an application that serves models over OpenAI's API.

    In a configuration file, its import path is `skate.serve.llm:build_openai_app`, and `args` are the fields of
    `LLMServingArgs`.

    Args:
        llm_serving_args: The configuration, or a dictionary of its fields.

    Returns:
        The application.

    Raises:
        ValueError: If the configuration is invalid.
    """
    args = LLMServingArgs.model_validate(llm_serving_args)
    models = {config.model_id: build_llm_deployment(config) for config in args.llm_configs}
    return build_ingress(models, args.llm_configs, args.ingress_cls_config, args.ingress_deployment_config)


def build_ingress(
    models: dict[str, serve.Application],
    configs: list[LLMConfig],
    ingress: IngressClsConfig,
    options: Mapping[str, Any],
) -> serve.Application:
    """Return an application whose ingress is in front of models.

    Args:
        models: The deployment of each model.
        configs: The configuration of each model.
        ingress: The class of the ingress.
        options: Options of its deployment.
    """
    kind: Any = ingress.ingress_cls
    merged = {**kind.get_deployment_options(configs), **options}
    if "autoscaling_config" in options:
        merged.pop("num_replicas", None)
    made: serve.Application = (
        serve.deployment(serve.ingress(None)(kind))
        .options(**merged)
        .bind(
            llm_deployments=models,
            model_cards={config.model_id: to_model_metadata(config.model_id, config) for config in configs},
            lora_paths={
                config.model_id: config.lora_config.dynamic_lora_loading_path
                for config in configs
                if config.lora_config is not None
            },
            **ingress.ingress_extra_kwargs,
        )
    )
    return made
