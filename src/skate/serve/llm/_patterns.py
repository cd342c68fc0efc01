"""Serving patterns of clusters: what one machine offers of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import Field, field_validator

from skate import serve
from skate.air import _arguments as arguments
from skate.serve.handle import DeploymentHandle
from skate.serve.llm._builders import IngressClsConfig, build_ingress, build_llm_deployment
from skate.serve.llm._config import ConfigModel, LLMConfig
from skate.serve.llm._ingress.ingress import OpenAiIngress
from skate.serve.llm._protocol.service import to_model_metadata
from skate.serve.llm._server.llm_server import LLMServer

__all__ = [
    "DPOpenAiServingArgs",
    "DPServer",
    "LLMRouter",
    "PDDecodeServer",
    "PDPrefillServer",
    "PDServingArgs",
    "build_dp_deployment",
    "build_dp_openai_app",
    "build_pd_openai_app",
]

_NO_TRANSFER = (
    "Prefill and decode can only be split between engines that hand over their KV caches to each other, and no engine "
    "here does. Use build_openai_app: the engine interleaves prefill with decode in chunks."
)


class DPServer(LLMServer):
    """A deployment with one replica for each data-parallel rank: `engine_kwargs["data_parallel_size"]`.

    Each replica holds the whole model. Sharding experts over the ranks needs a cluster.
    """

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Return the options of the deployment of a model, with a replica for each rank.

        Args:
            llm_config: The configuration of the model.

        Raises:
            ValueError: If the configuration sets the number of replicas, too.
            NotImplementedError: If it asks for expert parallelism.
        """
        if llm_config.engine_kwargs.get("enable_expert_parallel"):
            raise NotImplementedError(
                "engine_kwargs['enable_expert_parallel'] needs engines on several machines: remove it."
            )
        for name in ("num_replicas", "autoscaling_config"):
            if name in llm_config.deployment_config:
                raise ValueError(
                    f"`deployment_config` must not set {name!r}: engine_kwargs['data_parallel_size'] is the number of "
                    "replicas."
                )
        size = llm_config.engine_kwargs.get("data_parallel_size", 1)
        arguments.whole("engine_kwargs['data_parallel_size']", size, low=1)
        return {**super().get_deployment_options(llm_config), "num_replicas": size}


class _NeedsTransfer(LLMServer):
    """A server that needs an engine which hands over its KV cache."""

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> NoReturn:
        """Raise NotImplementedError: no engine hands over its KV cache.

        Args:
            llm_config: The configuration of the model.
        """
        raise NotImplementedError(_NO_TRANSFER)


class PDDecodeServer(_NeedsTransfer):
    """Ray's name for a server that decodes what another has prefilled. No engine here can."""


class PDPrefillServer(_NeedsTransfer):
    """Ray's name for a server that prefills what another decodes. No engine here can."""


class DPOpenAiServingArgs(ConfigModel):
    """The configuration of an application that serves one model with data parallelism.

    Args:
        llm_config: The model: a configuration, a dictionary of its fields, or the path of a YAML file.
        ingress_cls_config: The class of the ingress, and further arguments of it.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    llm_config: LLMConfig
    ingress_cls_config: IngressClsConfig = Field(default_factory=IngressClsConfig)
    ingress_deployment_config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("llm_config", mode="before")
    @classmethod
    def _load_config(cls, value: Any) -> Any:
        return LLMConfig.from_file(value) if isinstance(value, str) else value


class PDServingArgs(ConfigModel):
    """The configuration of an application that splits prefill and decode: see `build_pd_openai_app`.

    Args:
        prefill_config: The model's configuration for prefill.
        decode_config: The model's configuration for decode.
        ingress_cls_config: The class of the ingress, and further arguments of it.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    prefill_config: LLMConfig
    decode_config: LLMConfig
    ingress_cls_config: IngressClsConfig = Field(default_factory=IngressClsConfig)
    ingress_deployment_config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("prefill_config", "decode_config", mode="before")
    @classmethod
    def _load_config(cls, value: Any) -> Any:
        return LLMConfig.from_file(value) if isinstance(value, str) else value


def build_dp_deployment(
    llm_config: LLMConfig | Mapping[str, Any],
    *,
    name_prefix: str | None = None,
    bind_kwargs: dict[str, Any] | None = None,
    override_serve_options: dict[str, Any] | None = None,
    deployment_cls: type[LLMServer] | None = None,
) -> serve.Application:
    """Build the deployment of one model with a replica for each data-parallel rank.

    Args:
        llm_config: The configuration of the model. `engine_kwargs["data_parallel_size"]` is the number of replicas.
        name_prefix: The beginning of the deployment's name.
        bind_kwargs: Further arguments of the class.
        override_serve_options: Options of the deployment, which replace those of the configuration.
        deployment_cls: The class; by default `DPServer`.

    Returns:
        The application.
    """
    return build_llm_deployment(
        llm_config,
        name_prefix=name_prefix,
        bind_kwargs=bind_kwargs,
        override_serve_options=override_serve_options,
        deployment_cls=deployment_cls or DPServer,
    )


def build_dp_openai_app(dp_serving_args: DPOpenAiServingArgs | Mapping[str, Any]) -> serve.Application:
    """Build an application that serves one model with data parallelism over OpenAI's API.

    Args:
        dp_serving_args: The configuration, or a dictionary of its fields.

    Returns:
        The application.
    """
    args = DPOpenAiServingArgs.model_validate(dp_serving_args)
    config = args.llm_config
    models = {config.model_id: build_dp_deployment(config)}
    return build_ingress(models, [config], args.ingress_cls_config, args.ingress_deployment_config)


def build_pd_openai_app(pd_serving_args: PDServingArgs | Mapping[str, Any]) -> serve.Application:
    """Raise NotImplementedError: no engine can hand over its KV cache, which splitting prefill and decode needs.

    Args:
        pd_serving_args: The configuration, or a dictionary of its fields.

    Raises:
        ValueError: If the configuration is invalid.
        NotImplementedError: Otherwise.
    """
    PDServingArgs.model_validate(pd_serving_args)
    raise NotImplementedError(_NO_TRANSFER)


class LLMRouter(OpenAiIngress):
    """The ingress of Ray 2.43 to 2.5x, which takes deployments and asks them for their configurations.

    `build_openai_app` replaces it:

        LLMRouter.as_deployment().bind([LLMServer.as_deployment(options).bind(llm_config)])

    Args:
        llm_deployments: A handle for each model.
        **kwargs: Further arguments of `OpenAiIngress`.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it, as Ray's does
        self, llm_deployments: list[DeploymentHandle[Any]], **kwargs: Any
    ) -> None:
        configs = [await handle.llm_config.remote() for handle in llm_deployments]
        super().__init__(
            {config.model_id: handle for config, handle in zip(configs, llm_deployments, strict=True)},
            {config.model_id: to_model_metadata(config.model_id, config) for config in configs},
            lora_paths={
                config.model_id: config.lora_config.dynamic_lora_loading_path
                for config in configs
                if config.lora_config is not None
            },
            **kwargs,
        )

    @classmethod
    def as_deployment(cls, llm_configs: list[LLMConfig] | None = None) -> serve.Deployment[Any]:
        """Return the deployment, which `bind` gives the models.

        Args:
            llm_configs: The configurations of the models, which decide the number of replicas.
        """
        made: serve.Deployment[Any] = serve.deployment(serve.ingress(None)(cls)).options(
            **cls.get_deployment_options(llm_configs)
        )
        return made
