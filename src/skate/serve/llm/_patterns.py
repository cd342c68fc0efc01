"""Ray's serving patterns for clusters, as far as one machine supports them, and older names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import model_validator

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
from skate.serve.llm._protocol.service import to_model_metadata
from skate.serve.llm._server.disaggregation import PDDecodeServer, PDPrefillServer
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


class _DPPDPrefillServer(PDPrefillServer, DPServer):
    """A deployment that computes prompts, with one replica for each data-parallel rank."""


class _DPPDDecodeServer(PDDecodeServer, DPServer):
    """A deployment that continues prompts, with one replica for each data-parallel rank."""


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

    Raises:
        ValueError: If a field is invalid, or the configurations are of different models.
    """

    prefill_config: LLMConfigOrFile
    decode_config: LLMConfigOrFile

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        prefill, decode = self.prefill_config, self.decode_config
        if prefill.model_id != decode.model_id:
            raise ValueError(
                f"`prefill_config` has the `model_id` {prefill.model_id!r} and `decode_config` has "
                f"{decode.model_id!r}: both must serve the same model."
            )
        for name, default in (("dtype", "auto"), ("quantization", None)):
            theirs, ours = (each.engine_kwargs.get(name, default) for each in (prefill, decode))
            if theirs != ours:
                raise ValueError(
                    f"engine_kwargs[{name!r}] is {theirs!r} in `prefill_config` and {ours!r} in `decode_config`: "
                    "engines exchange keys and values only if they compute them alike."
                )
        return self


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
    """Build an application that computes prompts in one deployment and continues them in another, over OpenAI's API.

    Long prompts then do not slow down the streams of other requests, and both deployments scale on their own. The
    deployments are named `Prefill:…` and `Decode:…`. In a Serve configuration file, set `import_path` to
    `skate.serve.llm:build_pd_openai_app` and `args` to the fields of `PDServingArgs`.

    Args:
        pd_serving_args: The configuration, or a dictionary of its fields.

    Returns:
        The application.

    Raises:
        ValueError: If the configuration is invalid.
        NotImplementedError: If a configuration chooses vLLM.

    Example:
        >>> from skate.serve.llm import build_pd_openai_app
        >>> model = {"model_loading_config": {"model_id": "tiny"}, "accelerator_config": {"kind": "cpu"}}
        >>> app = build_pd_openai_app({
        ...     "prefill_config": {**model, "deployment_config": {"num_replicas": 2}},
        ...     "decode_config": model,
        ... })
    """
    args = PDServingArgs.model_validate(pd_serving_args)
    prefill = _build_split(args.prefill_config, "Prefill:", PDPrefillServer, _DPPDPrefillServer)
    scales_to_zero = to_model_metadata("", args.prefill_config).scales_to_zero
    decode = _build_split(
        args.decode_config,
        "Decode:",
        PDDecodeServer,
        _DPPDDecodeServer,
        prefill_server=prefill,
        _prefill_scales_to_zero=scales_to_zero,
    )
    return build_ingress({args.decode_config.model_id: decode}, [args.decode_config], args)


def _build_split(
    config: LLMConfig, prefix: str, server: type[LLMServer], dp_server: type[LLMServer], **bind_kwargs: Any
) -> serve.Application:
    """Build one of the two deployments."""
    chosen = config.server_cls
    if chosen is None:
        chosen = dp_server if config.engine_kwargs.get("data_parallel_size", 1) != 1 else server
    elif not (isinstance(chosen, type) and issubclass(chosen, server)):
        raise ValueError(f"`server_cls` must be a subclass of {server.__name__}, got {chosen!r}.")
    return build_llm_deployment(config, name_prefix=prefix, bind_kwargs=bind_kwargs, deployment_cls=chosen)


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
