"""Processors, which add steps that use a model or a server to a dataset."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skate._base.suggestions import did_you_mean
from skate.data import ActorPoolStrategy, Dataset
from skate.data.llm._config import (
    EngineProcessorConfig,
    HttpRequestProcessorConfig,
    ProcessorConfig,
    ServeDeploymentProcessorConfig,
)
from skate.data.llm._deployment_worker import DeploymentWorker
from skate.data.llm._engine_worker import EngineWorker
from skate.data.llm._http_worker import HttpWorker
from skate.data.llm._rows import DATA_COLUMN, Postprocess, Preprocess, RowWorker

__all__ = ["Processor", "Stage", "build_llm_processor", "build_processor"]

_log = logging.getLogger("skate.data.llm")

UserFunction = Callable[[dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of a processor, which runs in a pool of actors.

    Args:
        name: The name of the stage.
        worker: The class whose instances process rows.
        arguments: The arguments of its constructor.
        rows_per_call: The maximum number of rows that an instance gets in a call.
        compute: The size of the pool.
        options: Options of the actors.
        required: Descriptions of the columns that rows must have.
        optional: Descriptions of the columns that rows may have.
    """

    name: str
    worker: type[RowWorker]
    arguments: Mapping[str, Any]
    rows_per_call: int
    compute: ActorPoolStrategy
    options: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, str] = field(default_factory=dict)
    optional: Mapping[str, str] = field(default_factory=dict)


class Processor:
    """Adds its steps to a dataset when it is called with one. Use `build_processor` to create a processor.

    Args:
        config: The configuration.
        stages: The steps between `preprocess` and `postprocess`.
        preprocess: A function that returns columns to add to a row before the stages.
        postprocess: A function that returns the resulting row.
        preprocess_map_kwargs: Arguments of `Dataset.map` for `preprocess`.
        postprocess_map_kwargs: Arguments of `Dataset.map` for `postprocess`.
    """

    DATA_COLUMN = DATA_COLUMN

    def __init__(
        self,
        config: ProcessorConfig,
        stages: Sequence[Stage],
        preprocess: UserFunction | None = None,
        postprocess: UserFunction | None = None,
        preprocess_map_kwargs: dict[str, Any] | None = None,
        postprocess_map_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.stages = {stage.name: stage for stage in stages}
        self.preprocess = preprocess
        self.postprocess = postprocess
        self.preprocess_map_kwargs = preprocess_map_kwargs or {}
        self.postprocess_map_kwargs = postprocess_map_kwargs or {}

    def __call__(self, dataset: Dataset) -> Dataset:
        """Return the dataset with the processor's steps. They run when its rows are consumed.

        Args:
            dataset: The dataset. `log_input_column_names` logs the columns that it must have.
        """
        if self.preprocess is not None:
            dataset = dataset.map(Preprocess(self.preprocess), **self.preprocess_map_kwargs)
        last = len(self.stages) - 1
        for number, stage in enumerate(self.stages.values()):
            carries_rows = number < last or self.postprocess is not None
            dataset = dataset.map_batches(
                stage.worker,
                batch_size=stage.rows_per_call,
                batch_format="pyarrow",
                compute=stage.compute,
                fn_constructor_kwargs={**stage.arguments, "carries_rows": carries_rows},
                **stage.options,
            )
        if self.postprocess is not None:
            continue_on_error = getattr(self.config, "should_continue_on_error", False)
            postprocess = Postprocess(self.postprocess, continue_on_error)
            dataset = dataset.map(postprocess, **self.postprocess_map_kwargs)
        return dataset

    def list_stage_names(self) -> list[str]:
        """Return the names of the stages, in order."""
        return list(self.stages)

    def get_stage_by_name(self, name: str) -> Stage:
        """Return a stage.

        Args:
            name: The name of the stage.

        Raises:
            ValueError: If there is no stage with this name.
        """
        if name not in self.stages:
            raise ValueError(f"the processor has no stage {name!r}.{did_you_mean(name, self.stages)}")
        return self.stages[name]

    def log_input_column_names(self) -> None:
        """Log the columns that the first stage reads."""
        name, stage = next(iter(self.stages.items()))
        lines = [f"The first stage of the processor is {name}."]
        for title, columns in (("Required", stage.required), ("Optional", stage.optional)):
            if columns:
                lines += [f"{title} columns:", *(f"  {column}: {text}" for column, text in columns.items())]
        _log.info("\n".join(lines))


def build_processor(
    config: ProcessorConfig,
    preprocess: UserFunction | None = None,
    postprocess: UserFunction | None = None,
    preprocess_map_kwargs: dict[str, Any] | None = None,
    postprocess_map_kwargs: dict[str, Any] | None = None,
    builder_kwargs: dict[str, Any] | None = None,
) -> Processor:
    """Return a processor. Call it with a dataset to add its steps.

    Args:
        config: The configuration, whose class determines what the processor does.
        preprocess: A function that takes a row and returns columns to add to it, such as `messages` and
            `sampling_params`. The other columns are kept.
        postprocess: A function that takes a row with its results and returns the row to keep.
        preprocess_map_kwargs: Arguments of `Dataset.map` for `preprocess`, such as `num_cpus`.
        postprocess_map_kwargs: Arguments of `Dataset.map` for `postprocess`.
        builder_kwargs: `chat_template_kwargs`, for the processors that run a model.

    Raises:
        TypeError: If `config` is not the configuration of a processor.
        ValueError: If `builder_kwargs` has an unknown name.

    Example:
        >>> from skate.data.llm import build_processor, vLLMEngineProcessorConfig
        >>> processor = build_processor(
        ...     vLLMEngineProcessorConfig(model_source="models/tiny", batch_size=64),
        ...     preprocess=lambda row: {"prompt": row["question"], "sampling_params": {"max_tokens": 20}},
        ...     postprocess=lambda row: {"answer": row["generated_text"]},
        ... )
        >>> processor.list_stage_names()
        ['vLLMEngineStage']
    """
    given = dict(builder_kwargs or {})
    known = ["chat_template_kwargs"] if isinstance(config, EngineProcessorConfig) else []
    for name in given:
        if name not in known:
            raise ValueError(
                f"`builder_kwargs` of a {type(config).__name__} must not contain {name!r}.{did_you_mean(name, known)}"
            )
    return Processor(
        config,
        [_stage_of(config, given.get("chat_template_kwargs") or {})],
        preprocess,
        postprocess,
        preprocess_map_kwargs,
        postprocess_map_kwargs,
    )


build_llm_processor = build_processor  # Ray's older name


def _stage_of(config: ProcessorConfig, chat_template_kwargs: Mapping[str, Any]) -> Stage:
    if isinstance(config, EngineProcessorConfig):
        return _engine_stage(config, chat_template_kwargs)
    if isinstance(config, HttpRequestProcessorConfig):
        return _request_stage(
            "HttpRequestStage",
            HttpWorker,
            config,
            required={"payload": "the body of the request, as JSON values"},
        )
    if isinstance(config, ServeDeploymentProcessorConfig):
        return _request_stage(
            "ServeDeploymentStage",
            DeploymentWorker,
            config,
            required={"method": "the method to call", "request_kwargs": "the fields of the request"},
            optional={"dtype": "the name of the request's class in `dtype_mapping`"},
        )
    raise TypeError(
        f"`config` must be the configuration of a processor, such as vLLMEngineProcessorConfig, got {config!r}"
    )


def _request_stage(
    name: str,
    worker: type[RowWorker],
    config: HttpRequestProcessorConfig | ServeDeploymentProcessorConfig,
    *,
    required: Mapping[str, str],
    optional: Mapping[str, str] | None = None,
) -> Stage:
    """Return a stage that sends a request for each row."""
    return Stage(
        name=name,
        worker=worker,
        arguments={"config": config},
        rows_per_call=config.batch_size,
        compute=ActorPoolStrategy(**config.get_concurrency(autoscaling_enabled=False)),
        options=config.actor_options,
        required=required,
        optional=optional or {},
    )


def _engine_stage(config: EngineProcessorConfig, chat_template_kwargs: Mapping[str, Any]) -> Stage:
    parameters = "pooling_params" if config.task_type == "embed" else "sampling_params"
    prompt = {"prompt": "the text to continue, or `tokenized_prompt` with its tokens"}
    chat = {"messages": "a chat in OpenAI's format; or `prompt` or `tokenized_prompt`"}
    return Stage(
        name=f"{type(config).__name__.removesuffix('ProcessorConfig')}Stage",
        worker=EngineWorker,
        arguments={"config": config, "chat_template_kwargs": dict(chat_template_kwargs)},
        # Calls of an instance do not overlap, so one call gets the rows of all concurrent batches.
        rows_per_call=config.batch_size * config.max_concurrent_batches,
        compute=ActorPoolStrategy(
            **config.get_concurrency(), max_tasks_in_flight_per_actor=config.max_tasks_in_flight_per_actor
        ),
        options=config.actor_options,
        required=chat if config.chat_template_stage.enabled else prompt,
        optional={parameters: "parameters of this row", "model": "the name of a LoRA adapter"},
    )
