"""Configuration of the stages of a processor, with Ray's names and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import PositiveInt

from skate.air._config_model import ConfigModel

__all__ = [
    "ChatTemplateStageConfig",
    "DetokenizeStageConfig",
    "HttpRequestStageConfig",
    "PrepareMultimodalStageConfig",
    "TokenizerStageConfig",
    "stage_config",
]


class StageConfig(ConfigModel):
    """Fields of every stage.

    Args:
        enabled: Whether the stage runs.
        batch_size: The number of rows in a batch.
        concurrency: The number of actors, or their minimum and maximum number.
        runtime_env: The runtime environment of the actors.
        num_cpus: The number of CPUs of each actor.
        memory: The memory of each actor in bytes.
    """

    enabled: bool = True
    batch_size: PositiveInt | None = None
    concurrency: PositiveInt | tuple[PositiveInt, PositiveInt] | None = None
    runtime_env: dict[str, Any] | None = None
    num_cpus: float | None = None
    memory: float | None = None


class ChatTemplateStageConfig(StageConfig):
    """How messages become the text of a prompt.

    The stage runs in the actors of the engine, so `batch_size`, `concurrency`, `runtime_env`, `num_cpus` and `memory`
    have no effect.

    Args:
        enabled: Whether rows may have `messages`. Otherwise they need a `prompt` or a `tokenized_prompt`.
        model_source: A folder with a tokenizer to use instead of the model's.
        chat_template: A Jinja template to use instead of the model's.
        chat_template_kwargs: Additional variables of the template, such as `enable_thinking`.
    """

    model_source: str | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizerStageConfig(StageConfig):
    """How prompts become tokens.

    The engine tokenizes each prompt that has no tokens. Only `model_source` has an effect.

    Args:
        model_source: A folder with a tokenizer to use instead of the model's.
    """

    model_source: str | None = None


class DetokenizeStageConfig(StageConfig):
    """How generated tokens become text.

    The stage runs in the actors of the engine, so `batch_size`, `concurrency`, `runtime_env`, `num_cpus` and `memory`
    have no effect.

    Args:
        enabled: Whether to add the text even if the sampling parameters of a row have `detokenize=False`.
        model_source: A folder with a tokenizer to use instead of the model's.
    """

    model_source: str | None = None


class PrepareMultimodalStageConfig(StageConfig):
    """How images and audio in messages are prepared. The stage cannot be enabled, because models take text only.

    Args:
        model_config_kwargs: Options of the model's configuration.
        chat_template_content_format: "string" or "openai".
        apply_sys_msg_formatting: Whether system messages are formatted.
    """

    model_config_kwargs: dict[str, Any] | None = None
    chat_template_content_format: Literal["string", "openai"] | None = "string"
    apply_sys_msg_formatting: bool | None = False


class HttpRequestStageConfig(StageConfig):
    """How requests are sent. Each field replaces the field of the same name in the processor's configuration."""


Stage = TypeVar("Stage", bound=StageConfig)


def stage_config(field: str, given: Any, kind: type[Stage]) -> Stage:
    """Return the configuration of a stage, which may be given in a short form.

    Args:
        field: The name of the field, for error messages.
        given: Whether the stage is enabled, a dict of its fields, or its configuration.
        kind: The class of the configuration.

    Raises:
        ValueError: If the value has another type, or invalid fields.
    """
    if isinstance(given, kind):
        return given
    if isinstance(given, bool):
        return kind(enabled=given)
    if isinstance(given, Mapping):
        return kind(**given)
    raise ValueError(f"`{field}` must be a bool, a dict or a {kind.__name__}, got {given!r}")
