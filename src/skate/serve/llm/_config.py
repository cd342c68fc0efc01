"""Configuration of served models, with Ray's names and fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from skate import serve
from skate.air import _arguments as arguments
from skate.air._config_model import ConfigModel
from skate.serve.llm._imports import import_object
from skate.util import accelerators

__all__ = [
    "CPUConfig",
    "CallbackConfig",
    "CloudMirrorConfig",
    "ConfigModel",
    "ExtraFiles",
    "GPUConfig",
    "LLMConfig",
    "LoraConfig",
    "ModelLoadingConfig",
    "TPUConfig",
]

_CLOUD_SCHEMES = ("s3://", "gs://", "abfss://", "azure://")
_PLACEMENT_OPTIONS = ("placement_group_bundles", "placement_group_strategy")


class ExtraFiles(ConfigModel):
    """Files to download in addition to a model.

    Args:
        bucket_uri: The URI of the files.
        destination_path: The local folder to store them in.
    """

    bucket_uri: str
    destination_path: str


class CloudMirrorConfig(ConfigModel):
    """A model in cloud storage.

    Args:
        bucket_uri: The URI of the model: `s3://…`, `gs://…`, `abfss://…` or `azure://…`.
        extra_files: Files to download in addition to the model.
    """

    bucket_uri: str | None = None
    extra_files: list[ExtraFiles] = Field(default_factory=list)

    @field_validator("bucket_uri")
    @classmethod
    def _check_uri(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(_CLOUD_SCHEMES):
            raise ValueError(
                f"`bucket_uri` must start with one of {', '.join(_CLOUD_SCHEMES)}, got {value!r}. For a local folder, "
                "set `model_source` to its path."
            )
        return value

    @property
    def storage_type(self) -> str | None:
        """The kind of storage: "s3", "gcs", "abfss", "azure" or None."""
        if self.bucket_uri is None:
            return None
        scheme = self.bucket_uri.partition("://")[0]
        return "gcs" if scheme == "gs" else scheme


class LoraConfig(ConfigModel):
    """LoRA adapters of a model.

    Args:
        dynamic_lora_loading_path: The folder whose subfolders are adapters: a local path or a URI of cloud storage.
            The model `"base:name"` uses the adapter in the subfolder `name`.
        max_num_adapters_per_replica: The maximum number of adapters that a replica keeps. When there are more, the
            replica unloads the least recently used one.
        download_timeout_s: The timeout of a download in seconds; None for no limit.
        max_download_tries: The maximum number of attempts to download an adapter.
    """

    dynamic_lora_loading_path: str | None = None
    max_num_adapters_per_replica: PositiveInt = 16
    download_timeout_s: float | None = 30.0
    max_download_tries: PositiveInt = 3

    @field_validator("dynamic_lora_loading_path", mode="before")
    @classmethod
    def _normalize_path(cls, value: Any) -> Any:
        if isinstance(value, Path):
            value = str(value)
        if not isinstance(value, str):
            return value
        if "://" in value and not value.startswith(_CLOUD_SCHEMES):
            raise ValueError(
                f"`dynamic_lora_loading_path` must be a local folder or start with one of "
                f"{', '.join(_CLOUD_SCHEMES)}, got {value!r}."
            )
        return value.rstrip("/") or "/"

    @property
    def is_local(self) -> bool:
        """Whether the adapters are in a local folder."""
        return self.dynamic_lora_loading_path is not None and "://" not in self.dynamic_lora_loading_path


class ModelLoadingConfig(ConfigModel):
    """Where to load a model from, and its name in requests.

    Args:
        model_id: The name of the model in requests.
        model_source: A folder, a file, an id on the Hugging Face hub, or a `CloudMirrorConfig`. Defaults to `model_id`.
        tokenizer_source: A folder with the tokenizer. Defaults to the model's own tokenizer.
    """

    model_id: str = Field(min_length=1)
    model_source: str | CloudMirrorConfig | None = None
    tokenizer_source: str | None = None

    @field_validator("model_source", mode="before")
    @classmethod
    def _accept_path(cls, value: Any) -> Any:
        return str(value) if isinstance(value, Path) else value


class CPUConfig(ConfigModel):
    """Run the model on CPUs."""

    kind: Literal["cpu"] = "cpu"


class GPUConfig(ConfigModel):
    """Run the model on GPUs."""

    kind: Literal["gpu"] = "gpu"


class TPUConfig(ConfigModel):
    """Run the model on TPUs.

    Args:
        topology: The topology of the slice.
    """

    kind: Literal["tpu"] = "tpu"
    topology: str | None = None


AcceleratorConfig = Annotated[CPUConfig | GPUConfig | TPUConfig, Field(discriminator="kind")]


class CallbackConfig(ConfigModel):
    """Code to run around the start of an engine.

    A callback may define the methods `on_before_node_init()` and `on_after_node_init()`, which may be coroutine
    functions. A replica calls them before and after it starts its engine.

    Args:
        callback_class: The class, or its import path. It is instantiated with `llm_config` and `callback_kwargs`.
        callback_kwargs: Additional arguments of the class.
        raise_error_on_callback: Whether the replica fails when a callback raises an error. Otherwise the error is
            logged.
    """

    callback_class: str | type | None = None
    callback_kwargs: dict[str, Any] = Field(default_factory=dict)
    raise_error_on_callback: bool = True


class LLMConfig(ConfigModel):
    """The configuration of a served model.

    Args:
        model_loading_config: Where to load the model from, and its name in requests.
        llm_engine: The engine: "auto", "torch", "vLLM", an import path such as `"package.module:start"`, or a function.
            "auto" is vLLM if it is installed and the replica has a GPU; see `skate.llm.load_engine`. A function takes
            the configuration and returns a `skate.llm.Engine`.
        engine_kwargs: Options of the engine. With vLLM, the fields of its `AsyncEngineArgs`.
        runtime_env: The runtime environment of the replicas.
        accelerator_type: The type of accelerator that the model needs, such as "H100".
        accelerator_config: The kind of accelerator. By default, it follows from `placement_group_config` and
            `accelerator_type`.
        placement_group_config: The resources of each replica: `bundles`, or `bundle_per_worker` for each of the workers
            that `tensor_parallel_size` and `pipeline_parallel_size` request; and `strategy`.
        lora_config: LoRA adapters of the model.
        deployment_config: Options of `serve.deployment`. A replica accepts `max_ongoing_requests` requests, which run
            or wait in its engine; `max_queued_requests` more wait for a replica. Further requests get the status 429.
        server_cls: The class of the deployment, or its import path. Defaults to `LLMServer`.
        experimental_configs: Options that may change. `num_ingress_replicas` is the number of replicas of the ingress.
            `stream_batching_interval_ms` has no effect, because streams are not batched.
        log_engine_metrics: Whether the replicas export metrics of their requests.
        callback_config: Code to run around the start of the engine.

    Raises:
        ValueError: If a field is unknown or invalid.

    Example:
        >>> from skate.serve.llm import LLMConfig
        >>> config = LLMConfig(
        ...     model_loading_config={"model_id": "tiny", "model_source": "models/tiny"},
        ...     deployment_config={"max_ongoing_requests": 64},
        ... )
        >>> config.model_id
        'tiny'
    """

    runtime_env: dict[str, Any] | None = None
    model_loading_config: ModelLoadingConfig
    llm_engine: str | Callable[..., Any] = "auto"
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    accelerator_type: str | None = None
    accelerator_config: AcceleratorConfig | None = None
    placement_group_config: dict[str, Any] | None = None
    lora_config: LoraConfig | None = None
    deployment_config: dict[str, Any] = Field(default_factory=dict)
    server_cls: type | str | None = None
    experimental_configs: dict[str, Any] = Field(default_factory=dict)
    log_engine_metrics: bool = True
    callback_config: CallbackConfig = Field(default_factory=CallbackConfig)

    @property
    def model_id(self) -> str:
        """The name of the model in requests."""
        return self.model_loading_config.model_id

    @property
    def max_request_context_length(self) -> int | None:
        """The engine option `max_model_len`, if it is set."""
        return self.engine_kwargs.get("max_model_len")

    @property
    def input_modality(self) -> str:
        """Always "text"."""
        return "text"

    @property
    def accelerator_kind(self) -> Literal["cpu", "gpu", "tpu"] | None:
        """The kind of accelerator that the configuration requests, or None."""
        return None if self.accelerator_config is None else self.accelerator_config.kind

    @property
    def num_workers(self) -> int:
        """The number of processes or devices that one engine runs on."""
        sizes = ("tensor_parallel_size", "pipeline_parallel_size")
        count = 1
        for name in sizes:
            count *= arguments.whole(f"engine_kwargs[{name!r}]", self.engine_kwargs.get(name, 1), low=1)
        return count

    def get_serve_options(self, *, name_prefix: str) -> dict[str, Any]:
        """Return the options of the model's deployment. `build_llm_deployment` replaces this method.

        Args:
            name_prefix: The prefix of the deployment's name.
        """
        from skate.serve.llm._server.placement import deployment_name, deployment_options

        return {**deployment_options(self), "name": f"{name_prefix}{deployment_name(self)}"}

    @field_validator("server_cls")
    @classmethod
    def _load_server_cls(cls, value: type | str | None) -> type | None:
        return import_object("server_cls", value) if isinstance(value, str) else value

    @field_validator("accelerator_type")
    @classmethod
    def _check_accelerator_type(cls, value: str | None) -> str | None:
        if value is None:
            return None
        value = "A10G" if value == "A10" else value
        known = [
            each for name, each in vars(accelerators).items() if name.isupper() and isinstance(each, str)
        ]
        if value not in known:
            hint = arguments.hint_for_unknown(value, known)
            raise ValueError(f"`accelerator_type` must be a known type of accelerator, got {value!r}. {hint}")
        return value

    @field_validator("placement_group_config")
    @classmethod
    def _check_placement(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        known = ("bundles", "bundle_per_worker", "strategy")
        for name in value:
            if name not in known:
                hint = arguments.hint_for_unknown(name, known)
                raise ValueError(f"`placement_group_config` has no key {name!r}. {hint}")
        if "bundles" in value and "bundle_per_worker" in value:
            raise ValueError(
                "`placement_group_config` must not have both `bundles` and `bundle_per_worker`: remove one of them."
            )
        if "bundles" not in value and "bundle_per_worker" not in value:
            raise ValueError("`placement_group_config` needs `bundles` or `bundle_per_worker`.")
        return value

    @field_validator("deployment_config")
    @classmethod
    def _check_deployment_config(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in _PLACEMENT_OPTIONS:
            if name in value:
                raise ValueError(
                    f"`deployment_config` must not contain {name!r}: set `placement_group_config` instead."
                )
        try:
            serve.deployment(_Probe).options(**value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`deployment_config` is invalid: {error}") from error
        return value

    @field_validator("experimental_configs")
    @classmethod
    def _check_experimental_configs(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "num_router_replicas" in value:
            raise ValueError("`num_router_replicas` has been renamed: set `num_ingress_replicas`.")
        return value

    @model_validator(mode="after")
    def _resolve_accelerator(self) -> Self:
        if self.accelerator_config is None:
            kind = _kind_of_bundles(self.placement_group_config) or _kind_of_type(self.accelerator_type)
            if kind is not None:
                config = {"cpu": CPUConfig, "gpu": GPUConfig, "tpu": TPUConfig}[kind]()
                object.__setattr__(self, "accelerator_config", config)
        if self.accelerator_type is None:
            return self
        if self.accelerator_kind == "cpu":
            raise ValueError(
                f"accelerator_type={self.accelerator_type!r} cannot be used with CPU-only configurations. Remove it, "
                "or request accelerators in `accelerator_config` or `placement_group_config`."
            )
        needed = _kind_of_type(self.accelerator_type)
        if self.accelerator_kind != needed:
            raise ValueError(
                f"accelerator_type={self.accelerator_type!r} is a type of {str(needed).upper()}, but the "
                f"configuration requests {str(self.accelerator_kind).upper()}s."
            )
        return self

    @model_validator(mode="after")
    def _check_log_stats(self) -> Self:
        if self.log_engine_metrics and self.engine_kwargs.get("disable_log_stats"):
            raise ValueError(
                "engine_kwargs['disable_log_stats'] disables the engine's metrics, but `log_engine_metrics` is true: "
                "set it to false."
            )
        return self


class _Probe:
    """A class with which the options of a deployment are checked."""


def _kind_of_bundles(placement: Mapping[str, Any] | None) -> Literal["cpu", "gpu", "tpu"] | None:
    if placement is None:
        return None
    bundles = placement.get("bundles")
    if bundles is None:
        bundles = [placement["bundle_per_worker"]]
    names = {name for bundle in bundles for name, amount in bundle.items() if amount}
    if "GPU" in names:
        return "gpu"
    return "tpu" if "TPU" in names else "cpu"


def _kind_of_type(accelerator_type: str | None) -> Literal["gpu", "tpu"] | None:
    if accelerator_type is None:
        return None
    return "tpu" if accelerator_type.startswith("TPU") else "gpu"
