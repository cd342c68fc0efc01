"""Configuration of processors, with Ray's names and fields."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from skate.air import _arguments as arguments
from skate.air._config_model import ConfigModel
from skate.data.llm._stage_config import (
    ChatTemplateStageConfig,
    DetokenizeStageConfig,
    HttpRequestStageConfig,
    PrepareMultimodalStageConfig,
    TokenizerStageConfig,
    stage_config,
)
from skate.llm import is_vllm_installed

__all__ = [
    "EngineProcessorConfig",
    "HttpRequestProcessorConfig",
    "ProcessorConfig",
    "SGLangEngineProcessorConfig",
    "ServeDeploymentProcessorConfig",
    "vLLMEngineProcessorConfig",
]

_ENGINES = ("auto", "torch", "vLLM")
_PLACEMENT_KEYS = ("bundles", "bundle_per_worker", "strategy")


class ProcessorConfig(ConfigModel):
    """Fields of every processor.

    Args:
        batch_size: The number of rows in a batch.
        accelerator_type: The type of accelerator that the actors need, such as "H100"; None if they need none.
        concurrency: The number of actors, or their minimum and maximum number.

    Raises:
        ValueError: If a field is unknown or invalid.
    """

    batch_size: PositiveInt = 32
    accelerator_type: str | None = None
    concurrency: int | tuple[int, int] = 1

    @field_validator("concurrency")
    @classmethod
    def validate_concurrency(cls, concurrency: int | tuple[int, int]) -> int | tuple[int, int]:
        """Check that `concurrency` is positive, and that the minimum is not above the maximum.

        Args:
            concurrency: The value.
        """
        minimum, maximum = (concurrency, concurrency) if isinstance(concurrency, int) else concurrency
        if not 1 <= minimum <= maximum:
            raise ValueError(
                "`concurrency` must be a positive integer, or (minimum, maximum) with 1 <= minimum <= maximum, got "
                f"{concurrency}"
            )
        return concurrency

    def get_concurrency(self, autoscaling_enabled: bool = True) -> dict[str, Any]:
        """Return the size of the pool of actors, as arguments of `skate.data.ActorPoolStrategy`.

        Args:
            autoscaling_enabled: Whether an integer is the maximum size of a pool that grows, or the size of a fixed
                pool.

        Example:
            >>> from skate.data.llm import ProcessorConfig
            >>> ProcessorConfig(concurrency=4).get_concurrency()
            {'min_size': 1, 'max_size': 4}
            >>> ProcessorConfig(concurrency=4).get_concurrency(autoscaling_enabled=False)
            {'size': 4}
        """
        if not isinstance(self.concurrency, int):
            return {"min_size": self.concurrency[0], "max_size": self.concurrency[1]}
        if autoscaling_enabled:
            return {"min_size": 1, "max_size": self.concurrency}
        return {"size": self.concurrency}


class RowProcessorConfig(ProcessorConfig):
    """Fields of the processors that process each row on its own.

    Args:
        should_continue_on_error: Whether the job continues when a row fails.
    """

    should_continue_on_error: bool = False

    @property
    def actor_options(self) -> dict[str, Any]:
        """Options of the actors."""
        return {"accelerator_type": self.accelerator_type}


class EngineProcessorConfig(RowProcessorConfig):
    """Fields of the processors that run a model."""

    TASK_TYPES: ClassVar[tuple[str, ...]]

    model_source: str
    runtime_env: dict[str, Any] | None = None
    max_pending_requests: int | None = None
    max_concurrent_batches: PositiveInt = 8
    max_tasks_in_flight_per_actor: PositiveInt | None = None
    chat_template_stage: Any = True
    tokenize_stage: Any = True
    detokenize_stage: Any = True
    prepare_multimodal_stage: Any = False
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    llm_engine: str = "auto"
    task_type: str = "generate"

    @field_validator("model_source", mode="before")
    @classmethod
    def _check_source(cls, value: Any) -> Any:
        return _local("model_source", value)

    @field_validator("task_type")
    @classmethod
    def validate_task_type(cls, value: str) -> str:
        """Check that the engine supports tasks of a type.

        Args:
            value: The type.
        """
        if value not in cls.TASK_TYPES:
            hint = arguments.hint_for_unknown(value, cls.TASK_TYPES)
            raise ValueError(f"`task_type` is {value!r}, which the engines do not support. {hint}")
        return value

    @field_validator("llm_engine")
    @classmethod
    def validate_llm_engine(cls, value: str) -> str:
        """Check that there is an engine of a name.

        Args:
            value: The name.
        """
        if value.lower() not in (name.lower() for name in _ENGINES):
            hint = arguments.hint_for_unknown(value, _ENGINES)
            raise ValueError(f"`llm_engine` is {value!r}, which is not an engine. {hint}")
        return value

    @model_validator(mode="after")
    def _resolve_stages(self) -> Self:
        for name, kind in (
            ("chat_template_stage", ChatTemplateStageConfig),
            ("tokenize_stage", TokenizerStageConfig),
            ("detokenize_stage", DetokenizeStageConfig),
            ("prepare_multimodal_stage", PrepareMultimodalStageConfig),
        ):
            object.__setattr__(self, name, stage_config(name, getattr(self, name), kind))
        if self.prepare_multimodal_stage.enabled:
            raise ValueError(
                "`prepare_multimodal_stage` is enabled, but the engines take text only: remove it, and send "
                "messages without images and audio"
            )
        if len(self._tokenizers) > 1:
            raise ValueError(
                f"the stages name several tokenizers ({', '.join(sorted(self._tokenizers))}), but the engine has only "
                "one: set the same `model_source` in each stage, or in one stage only"
            )
        return self

    @property
    def _tokenizers(self) -> set[str]:
        stages = (self.chat_template_stage, self.tokenize_stage, self.detokenize_stage)
        return {each.model_source for each in stages if each.model_source not in (None, self.model_source)}

    @property
    def tokenizer_source(self) -> str | None:
        """The folder of the tokenizer, if it is not the model's own."""
        return next(iter(self._tokenizers), None)

    @property
    def actor_options(self) -> dict[str, Any]:
        """Options of the actors that run the engine, with the GPUs that it uses."""
        options = {**super().actor_options, "runtime_env": self.runtime_env}
        return options | ({"num_gpus": self._gpus} if self._gpus else {})

    @property
    def _gpus(self) -> int:
        """The GPUs of an engine: none if this machine has none."""
        import torch

        if not torch.cuda.is_available():
            return 0
        if self.llm_engine.lower() == "torch" or not is_vllm_installed():
            return 1
        sizes = ("tensor_parallel_size", "pipeline_parallel_size")
        return math.prod(int(self.engine_kwargs.get(name) or 1) for name in sizes)


class vLLMEngineProcessorConfig(EngineProcessorConfig):  # noqa: N801 - Ray's name
    """A processor that runs a model, with the options of vLLM.

    vLLM runs the model if it is installed and the actor has a GPU, and the embedded engine otherwise; see
    `skate.llm.load_engine`.

    A row needs `messages`, a `prompt` or a `tokenized_prompt`. It may have `sampling_params` with vLLM's names, and a
    `model`, which names a LoRA adapter. The processor adds `prompt`, `num_input_tokens`, `generated_text`,
    `generated_tokens` and `num_generated_tokens` to the row, or `embeddings` if `task_type` is "embed".

    Args:
        model_source: A folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.
        batch_size: The number of rows in a batch.
        engine_kwargs: Options of the engine, with vLLM's names; see `skate.llm.load_engine`.
        llm_engine: The engine: "auto", "torch" or "vLLM". Ray has no such field.
        task_type: "generate" or "embed".
        runtime_env: The runtime environment of the actors.
        max_pending_requests: The maximum number of rows in the engine of an actor; None for no further limit.
        max_concurrent_batches: The number of batches that an actor processes concurrently, in one engine.
        max_tasks_in_flight_per_actor: The most tasks that run in an actor or are queued for it.
        should_continue_on_error: Whether the job continues when a row fails. The row keeps its columns and gets the
            reason as `__inference_error__`, which is empty in the other rows. `postprocess` does not see failed rows.
        log_engine_metrics: Has no effect, because engines export no metrics from batch jobs.
        dynamic_lora_loading_path: The local folder whose subfolders are LoRA adapters. Without it, the `model` of a
            row is the path of an adapter.
        placement_group_config: The resources of each actor, as `bundle_per_worker` or as one bundle in `bundles`.
        chat_template_stage: How messages become prompts: a bool, a dict or a `ChatTemplateStageConfig`.
        tokenize_stage: How prompts become tokens: a bool, a dict or a `TokenizerStageConfig`.
        detokenize_stage: How tokens become text: a bool, a dict or a `DetokenizeStageConfig`.
        prepare_multimodal_stage: Must not be enabled: the engine takes text only.
        accelerator_type: The type of accelerator that the actors need, such as "H100"; None if they need none.
        concurrency: The maximum number of actors, each with its own engine, or their minimum and maximum number.

    Raises:
        ValueError: If a field is unknown or invalid.

    Example:
        >>> from skate.data.llm import vLLMEngineProcessorConfig
        >>> config = vLLMEngineProcessorConfig(
        ...     model_source="models/tiny",
        ...     engine_kwargs={"max_model_len": 2048},
        ...     chat_template_stage={"chat_template_kwargs": {"enable_thinking": False}},
        ... )
        >>> config.chat_template_stage.enabled
        True
    """

    TASK_TYPES: ClassVar[tuple[str, ...]] = ("generate", "embed")

    log_engine_metrics: bool = True
    dynamic_lora_loading_path: str | None = None
    placement_group_config: dict[str, Any] | None = None

    @field_validator("dynamic_lora_loading_path", mode="before")
    @classmethod
    def _check_loading_path(cls, value: Any) -> Any:
        return _local("dynamic_lora_loading_path", value)

    @field_validator("placement_group_config")
    @classmethod
    def validate_placement_group_config(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        """Check that the resources describe one process.

        Args:
            value: The resources.
        """
        if value is None:
            return None
        for name in value:
            if name not in _PLACEMENT_KEYS:
                hint = arguments.hint_for_unknown(name, _PLACEMENT_KEYS)
                raise ValueError(f"`placement_group_config` has no key {name!r}. {hint}")
        if ("bundles" in value) == ("bundle_per_worker" in value):
            raise ValueError("`placement_group_config` needs either `bundles` or `bundle_per_worker`")
        if len(value.get("bundles", [None])) != 1:
            raise ValueError(
                "`placement_group_config` must have one bundle, because an engine runs on one machine, got "
                f"{value['bundles']}"
            )
        return value

    @property
    def actor_options(self) -> dict[str, Any]:
        """Options of the actors that run the engine."""
        options = super().actor_options
        placement = self.placement_group_config
        if placement is None:
            return options
        bundle = dict(placement.get("bundle_per_worker") or placement["bundles"][0])
        options |= {"num_cpus": bundle.pop("CPU", 0), "num_gpus": bundle.pop("GPU", 0)}
        return {**options, "resources": bundle or None}


class SGLangEngineProcessorConfig(EngineProcessorConfig):
    """A processor that runs a model, with the options of SGLang.

    Skate does not use SGLang: vLLM or the embedded engine runs the model, as `skate.llm.load_engine` chooses. Rows are
    as in `vLLMEngineProcessorConfig`, and their `sampling_params` may have SGLang's names.

    Args:
        model_source: A folder with a model in Hugging Face's format, a GGUF file, or an id on the Hugging Face hub.
        batch_size: The number of rows in a batch.
        engine_kwargs: Options of the engine, with SGLang's or vLLM's names.
        llm_engine: As in `vLLMEngineProcessorConfig`.
        task_type: "generate".
        runtime_env: The runtime environment of the actors.
        max_pending_requests: The maximum number of rows in the engine of an actor; None for no further limit.
        max_concurrent_batches: The number of batches that an actor processes concurrently, in one engine.
        max_tasks_in_flight_per_actor: The most tasks that run in an actor or are queued for it.
        should_continue_on_error: Whether the job continues when a row fails, as in `vLLMEngineProcessorConfig`.
        chat_template_stage: How messages become prompts.
        tokenize_stage: How prompts become tokens.
        detokenize_stage: How tokens become text.
        prepare_multimodal_stage: Must not be enabled: the engine takes text only.
        accelerator_type: The type of accelerator that the actors need, such as "H100"; None if they need none.
        concurrency: The maximum number of actors, each with its own engine, or their minimum and maximum number.

    Raises:
        ValueError: If a field is unknown or invalid.
    """

    TASK_TYPES: ClassVar[tuple[str, ...]] = ("generate",)


class HttpRequestProcessorConfig(RowProcessorConfig):
    """A processor that sends the `payload` of each row to a URL, and adds the response as `http_response`.

    The payload is sent as JSON with POST, and the response must be JSON. A request is retried with exponential backoff
    if it gets the status 408, 429 or 5xx, or no response. Any other status of 400 or above fails the row.

    Args:
        url: The URL.
        headers: Headers of the requests.
        qps: The maximum number of requests per second, of all actors together; None for no limit.
        max_retries: The maximum number of retries of a request.
        base_retry_wait_time_in_s: The delay before the first retry in seconds. Each further delay is twice as long.
        session_factory: A function that returns an `aiohttp.ClientSession`, for example to set timeouts or a proxy.
        should_continue_on_error: Whether the job continues when a row fails. The row gets the reason as
            `__inference_error__`. Ray has no such field.
        http_request_stage: Fields of the stage, which replace those of the processor: a bool, a dict or an
            `HttpRequestStageConfig`.
        batch_size: The number of rows whose requests an actor sends concurrently.
        accelerator_type: The type of accelerator that the actors need; None if they need none.
        concurrency: The number of actors, or their minimum and maximum number.

    Raises:
        ValueError: If a field is unknown or invalid.

    Example:
        >>> from skate.data.llm import HttpRequestProcessorConfig
        >>> config = HttpRequestProcessorConfig(url="http://127.0.0.1:8000/v1/completions", qps=10, max_retries=3)
        >>> config.batch_size
        64
    """

    batch_size: PositiveInt = 64
    url: str = Field(pattern=r"^https?://")
    headers: dict[str, Any] | None = None
    qps: PositiveFloat | None = None
    max_retries: NonNegativeInt = 0
    base_retry_wait_time_in_s: NonNegativeFloat = 1.0
    session_factory: Callable[[], Any] | None = None
    http_request_stage: Any = True

    @model_validator(mode="after")
    def _resolve_stage(self) -> Self:
        stage = stage_config("http_request_stage", self.http_request_stage, HttpRequestStageConfig)
        if not stage.enabled:
            raise ValueError(
                "`http_request_stage` is disabled, but it is the processor's only stage: enable it"
            )
        object.__setattr__(self, "http_request_stage", stage)
        for name in ("batch_size", "concurrency"):
            if (value := getattr(stage, name)) is not None:
                object.__setattr__(self, name, value)
        return self

    @property
    def actor_options(self) -> dict[str, Any]:
        """Options of the actors that send the requests."""
        stage = self.http_request_stage
        names = ("runtime_env", "num_cpus", "memory")
        return {**super().actor_options, **{name: getattr(stage, name) for name in names}}


class ServeDeploymentProcessorConfig(RowProcessorConfig):
    """A processor that calls a Serve deployment for each row.

    A row needs a `method` and its `request_kwargs`. It may have a `dtype`, which names the class of the request. The
    response must be a dict or a pydantic model, whose fields become columns.

    Args:
        deployment_name: The deployment to call.
        app_name: The application that it belongs to.
        dtype_mapping: Classes of requests by name. Without a `dtype`, the method gets the dict itself.
        should_continue_on_error: Whether the job continues when a row fails. The row gets the reason as
            `__inference_error__`.
        request_timeout_s: The timeout of a request in seconds; None for no limit.
        batch_size: The number of rows that an actor sends concurrently.
        accelerator_type: The type of accelerator that the actors need; None if they need none.
        concurrency: The number of actors, or their minimum and maximum number.

    Raises:
        ValueError: If a field is unknown or invalid.
    """

    deployment_name: str = Field(min_length=1)
    app_name: str = "default"
    dtype_mapping: dict[str, type[Any]] | None = None
    request_timeout_s: PositiveFloat | None = None


def _local(field: str, value: Any) -> Any:
    """Return a path as text.

    Raises:
        ValueError: If it is in cloud storage.
    """
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str) and "://" in value:
        raise ValueError(
            f"`{field}` is {value!r}, but processors read models from local folders: copy the model to one first"
        )
    return value
