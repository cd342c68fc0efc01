"""Functions that build applications and deployments for language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from skate import serve
from skate.serve.llm._config import ConfigModel, LLMConfig
from skate.serve.llm._imports import import_object
from skate.serve.llm._ingress.ingress import OpenAiIngress
from skate.serve.llm._protocol.service import to_model_metadata
from skate.serve.llm._server.llm_server import LLMServer
from skate.serve.llm._server.placement import deployment_name

__all__ = ["IngressClsConfig", "LLMServingArgs", "build_llm_deployment", "build_openai_app"]


class IngressClsConfig(ConfigModel):
    """The class of the ingress and its additional arguments.

    Args:
        ingress_cls: The class, or its import path. It must accept the arguments of `OpenAiIngress`.
        ingress_extra_kwargs: Additional arguments of the class, such as `api_keys`.
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


def _read_file(value: Any) -> Any:
    return LLMConfig.from_file(value) if isinstance(value, str) else value


LLMConfigOrFile = Annotated[LLMConfig, BeforeValidator(_read_file)]
"""A configuration, a dictionary of its fields, or the path of a YAML file."""


class IngressArgs(ConfigModel):
    """Fields of every application that has an ingress.

    Args:
        ingress_cls_config: The class of the ingress and its additional arguments.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    ingress_cls_config: IngressClsConfig = Field(default_factory=IngressClsConfig)
    ingress_deployment_config: dict[str, Any] = Field(default_factory=dict)


class LLMServingArgs(IngressArgs):
    """The configuration of an application that serves models.

    Args:
        llm_configs: The models: configurations, dictionaries of their fields, or paths of YAML files.
        ingress_cls_config: The class of the ingress and its additional arguments.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    llm_configs: list[LLMConfigOrFile] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_ids(self) -> LLMServingArgs:
        ids = [config.model_id for config in self.llm_configs]
        for each in ids:
            if ids.count(each) > 1:
                raise ValueError(f"Two models have the same `model_id`, {each!r}: rename one of them.")
        return self


def build_llm_deployment(
    llm_config: LLMConfig | Mapping[str, Any],
    *,
    name_prefix: str | None = None,
    bind_kwargs: dict[str, Any] | None = None,
    override_serve_options: dict[str, Any] | None = None,
    deployment_cls: type[LLMServer] | None = None,
) -> serve.Application:
    """Build the deployment of one model, which other deployments can call through its handle.

    Args:
        llm_config: The configuration of the model.
        name_prefix: The prefix of the deployment's name. Defaults to the name of the class and a colon.
        bind_kwargs: Additional arguments of the class.
        override_serve_options: Options of the deployment that replace those of the configuration.
        deployment_cls: The class. Defaults to `server_cls` of the configuration, or `LLMServer`.

    Returns:
        The application.
    """
    config = llm_config if isinstance(llm_config, LLMConfig) else LLMConfig.model_validate(llm_config)
    server_cls: Any = deployment_cls or config.server_cls or LLMServer
    prefix = f"{server_cls.__name__}:" if name_prefix is None else name_prefix
    options = server_cls.get_deployment_options(config)
    options["name"] = prefix + deployment_name(config)
    options.update(override_serve_options or {})
    deployment = serve.deployment(server_cls).options(**options)
    application: serve.Application = deployment.bind(config, **(bind_kwargs or {}))
    return application


def build_openai_app(llm_serving_args: LLMServingArgs | Mapping[str, Any]) -> serve.Application:
    """Build an application that serves models over OpenAI's API.

    In a Serve configuration file, set `import_path` to `skate.serve.llm:build_openai_app` and `args` to the fields of
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
    return build_ingress(models, args.llm_configs, args)


def build_ingress(
    models: dict[str, serve.Application], configs: list[LLMConfig], args: IngressArgs
) -> serve.Application:
    """Return an application whose ingress forwards requests to models.

    Args:
        models: The deployment of each model.
        configs: The configuration of each model.
        args: The configuration of the ingress.
    """
    ingress_cls: Any = args.ingress_cls_config.ingress_cls
    options = {**ingress_cls.get_deployment_options(configs), **args.ingress_deployment_config}
    if "autoscaling_config" in args.ingress_deployment_config:
        options.pop("num_replicas", None)
    application: serve.Application = (
        serve.deployment(serve.ingress(None)(ingress_cls))
        .options(**options)
        .bind(
            llm_deployments=models, **describe_models(configs), **args.ingress_cls_config.ingress_extra_kwargs
        )
    )
    return application


def describe_models(configs: list[LLMConfig]) -> dict[str, Any]:
    """Return the arguments of `OpenAiIngress` that follow from the configurations of its models."""
    return {
        "model_cards": {config.model_id: to_model_metadata(config.model_id, config) for config in configs},
        "lora_paths": {
            config.model_id: config.lora_config.dynamic_lora_loading_path
            for config in configs
            if config.lora_config is not None
        },
    }
