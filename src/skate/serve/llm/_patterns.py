"""Ray's serving patterns for clusters, as far as one machine supports them, and older names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from skate import serve
from skate.air import _arguments as arguments
from skate.serve.handle import DeploymentHandle
from skate.serve.llm._builders import (
    IngressArgs,
    LLMConfigOrFile,
    build_ingress,
    build_llm_deployment,
    describe_models,
)
from skate.serve.llm._config import LLMConfig
from skate.serve.llm._ingress.ingress import OpenAiIngress
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
    "Prefill and decode can only be split between engines that transfer their KV caches, and no engine here does. Use "
    "build_openai_app: the engine interleaves chunks of prefill with decode."
)


class DPServer(LLMServer):
    """A deployment with one replica for each data-parallel rank. `engine_kwargs["data_parallel_size"]` is their number.

    Each replica holds the whole model. Sharding experts over the ranks needs a cluster.
    """

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Return the options of a model's deployment, with a replica for each rank.

        Args:
            llm_config: The configuration of the model.

        Raises:
            ValueError: If the configuration also sets the number of replicas.
            NotImplementedError: If it requests expert parallelism.
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


class _KVTransferServer(LLMServer):
    """A server that needs an engine that transfers its KV cache."""

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> NoReturn:
        """Raise NotImplementedError, because no engine transfers its KV cache.

        Args:
            llm_config: The configuration of the model.
        """
        raise NotImplementedError(_NO_TRANSFER)


class PDDecodeServer(_KVTransferServer):
    """Ray's server that decodes prompts which another server has prefilled. It is not supported."""


class PDPrefillServer(_KVTransferServer):
    """Ray's server that prefills prompts for another server to decode. It is not supported."""


class DPOpenAiServingArgs(IngressArgs):
    """The configuration of an application that serves one model with data parallelism.

    Args:
        llm_config: The model: a configuration, a dictionary of its fields, or the path of a YAML file.
        ingress_cls_config: The class of the ingress and its additional arguments.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    llm_config: LLMConfigOrFile


class PDServingArgs(IngressArgs):
    """The configuration of an application that splits prefill and decode; see `build_pd_openai_app`.

    Args:
        prefill_config: The model's configuration for prefill.
        decode_config: The model's configuration for decode.
        ingress_cls_config: The class of the ingress and its additional arguments.
        ingress_deployment_config: Options of `serve.deployment` for the ingress.
    """

    prefill_config: LLMConfigOrFile
    decode_config: LLMConfigOrFile


def build_dp_deployment(
    llm_config: LLMConfig | Mapping[str, Any],
    *,
    name_prefix: str | None = None,
    bind_kwargs: dict[str, Any] | None = None,
    override_serve_options: dict[str, Any] | None = None,
    deployment_cls: type[LLMServer] | None = None,
) -> serve.Application:
    """Build the deployment of one model with one replica for each data-parallel rank.

    Args:
        llm_config: The configuration of the model. `engine_kwargs["data_parallel_size"]` is the number of replicas.
        name_prefix: The prefix of the deployment's name.
        bind_kwargs: Additional arguments of the class.
        override_serve_options: Options of the deployment that replace those of the configuration.
        deployment_cls: The class. Defaults to `DPServer`.

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
    return build_ingress(models, [config], args)


def build_pd_openai_app(pd_serving_args: PDServingArgs | Mapping[str, Any]) -> serve.Application:
    """Raise NotImplementedError: to split prefill and decode, engines must transfer KV caches, and none does.

    Args:
        pd_serving_args: The configuration, or a dictionary of its fields.

    Raises:
        ValueError: If the configuration is invalid.
        NotImplementedError: Otherwise.
    """
    PDServingArgs.model_validate(pd_serving_args)
    raise NotImplementedError(_NO_TRANSFER)


class LLMRouter(OpenAiIngress):
    """The ingress of older versions of Ray, which takes deployments and asks them for their configurations.

    `build_openai_app` replaces it:

        LLMRouter.as_deployment().bind([LLMServer.as_deployment(options).bind(llm_config)])

    Args:
        llm_deployments: A handle for each model.
        **kwargs: Additional arguments of `OpenAiIngress`.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it, as Ray's does
        self, llm_deployments: list[DeploymentHandle[Any]], **kwargs: Any
    ) -> None:
        configs = [await handle.llm_config.remote() for handle in llm_deployments]
        super().__init__(
            {config.model_id: handle for config, handle in zip(configs, llm_deployments, strict=True)},
            **describe_models(configs),
            **kwargs,
        )

    @classmethod
    def as_deployment(cls, llm_configs: list[LLMConfig] | None = None) -> serve.Deployment[Any]:
        """Return the deployment. Pass the models to its `bind`.

        Args:
            llm_configs: The configurations of the models, which determine the number of replicas.
        """
        options = cls.get_deployment_options(llm_configs)
        deployment: serve.Deployment[Any] = serve.deployment(serve.ingress(None)(cls)).options(**options)
        return deployment
