"""The worker that completes or embeds rows with a model in its process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from skate._base.suggestions import did_you_mean
from skate.data.llm._config import EngineProcessorConfig
from skate.data.llm._rows import RowWorker, missing_column, shown
from skate.data.llm._sampling import sampling_params_of
from skate.llm import EngineDeadError, GenerationRequest, TokenLogprob, load_engine

__all__ = ["EngineWorker"]

# SGLang's names of engine arguments, and vLLM's. None means that the engines ignore the argument.
_SGLANG_ARGUMENTS = {
    "context_length": "max_model_len",
    "max_running_requests": "max_num_seqs",
    "chunked_prefill_size": "max_num_batched_tokens",
    "page_size": "block_size",
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "mem_fraction_static": None,
    "skip_tokenizer_init": None,
    "task_type": None,  # of the configuration
}


class EngineWorker(RowWorker):
    """Runs a model, whose engine processes many rows concurrently.

    Args:
        config: The configuration of the processor.
        chat_template_kwargs: Additional variables of the chat template.
        carries_rows: Whether each result is a row in one cell.
    """

    FATAL: ClassVar[tuple[type[Exception], ...]] = (EngineDeadError,)

    def __init__(
        self, *, config: EngineProcessorConfig, chat_template_kwargs: Mapping[str, Any], carries_rows: bool
    ) -> None:
        pending = config.max_pending_requests
        super().__init__(
            config,
            carries_rows=carries_rows,
            max_pending=pending if pending is not None and pending > 0 else None,
        )
        self._config = config
        self._variables = {
            **(config.chat_template_stage.chat_template_kwargs or {}),
            **chat_template_kwargs,
        }
        self._engine = load_engine(
            config.model_source,
            engine=config.llm_engine,
            tokenizer=config.tokenizer_source,
            **_engine_arguments(config),
        )
        self._numbers = itertools.count()
        self._adapters: dict[str, asyncio.Task[None]] = {}

    async def process(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the text that continues the row's prompt, or its embedding."""
        text, tokens = self._prompt(row)
        made = {"prompt": text, "num_input_tokens": len(tokens)}
        adapter = await self._adapter(row.get("model"))
        if self._config.task_type == "generate":
            return made | await self._generate(row, tokens, adapter)
        _check_pooling(row.get("pooling_params"))
        if adapter is not None:
            raise ValueError(f"engines do not embed with adapters, but the row's model is {adapter!r}")
        (vector,) = await self._engine.embed([tokens])
        return {**made, "embeddings": np.asarray(vector, dtype=np.float32)}

    def columns_of_failed_row(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return empty result columns."""
        made = {"prompt": row.get("prompt") or "", "num_input_tokens": 0}
        if self._config.task_type != "generate":
            return {**made, "embeddings": None}
        return {**made, "generated_text": "", "generated_tokens": [], "num_generated_tokens": 0}

    async def _generate(self, row: dict[str, Any], prompt: list[int], adapter: str | None) -> dict[str, Any]:
        given = row.get("sampling_params")
        params = sampling_params_of(given)
        request = GenerationRequest(
            request_id=str(next(self._numbers)), prompt=prompt, params=params, adapter=adapter
        )
        text: list[str] = []
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        async for piece in self._engine.generate(request):
            text.append(piece.text)
            tokens += piece.tokens
            logprobs += piece.logprobs or ()
        returns_text = self._config.detokenize_stage.enabled or (given or {}).get("detokenize") is not False
        made = {
            "generated_text": "".join(text) if returns_text else "",
            "generated_tokens": tokens,
            "num_generated_tokens": len(tokens),
        }
        if params.logprobs is not None:
            made["logprobs"] = [self._logprobs(each) for each in logprobs]
        return made

    def _logprobs(self, chosen: TokenLogprob) -> dict[int, dict[str, Any]]:
        """Return log-probabilities by token, as vLLM does. The rank is None for a token that is not among the best."""
        best: dict[int, tuple[float, int | None]] = {
            token: (logprob, rank) for rank, (token, logprob) in enumerate(chosen.top, start=1)
        }
        best.setdefault(chosen.token, (chosen.logprob, None))
        return {
            token: {
                "logprob": logprob,
                "rank": rank,
                "decoded_token": self._engine.tokenizer.token_text(token),
            }
            for token, (logprob, rank) in best.items()
        }

    def _prompt(self, row: dict[str, Any]) -> tuple[str, list[int]]:
        """Return the text of a row's prompt and its tokens."""
        tokenizer = self._engine.tokenizer
        text, tokens, messages = row.get("prompt"), row.get("tokenized_prompt"), row.get("messages")
        if tokens is not None:
            tokens = [int(token) for token in tokens]
            return text or tokenizer.decode(tokens, skip_special_tokens=False), tokens
        stage = self._config.chat_template_stage
        if messages is not None and stage.enabled:
            chat = [_message(each) for each in messages]
            text = tokenizer.apply_chat_template(
                chat,
                tools=row.get("tools"),
                # A conversation that ends with an answer is continued.
                continue_final_message=bool(chat) and chat[-1].get("role") == "assistant",
                chat_template=stage.chat_template,
                **self._variables,
                **_given(row.get("chat_template_kwargs")),
            )
            return text, tokenizer.encode(text, add_special_tokens=False)
        if text is None:
            wanted = "`messages`, `prompt` or `tokenized_prompt`" if stage.enabled else "`prompt`"
            raise missing_column(wanted, row, ("messages", "prompt", "tokenized_prompt"))
        if not isinstance(text, str):
            raise ValueError(f"`prompt` must be text, got {shown(text)}")
        return text, tokenizer.encode(text)

    async def _adapter(self, model: Any) -> str | None:
        """Load the adapter that a row names, unless it is loaded, and return its name."""
        if model is None or model == self._config.model_source:
            return None
        name = str(model)
        if name not in self._adapters:
            # Other rows may wait for the same task, so it continues when this row is cancelled.
            self._adapters[name] = asyncio.create_task(self._load_adapter(name))
        await asyncio.shield(self._adapters[name])
        return name

    async def _load_adapter(self, name: str) -> None:
        folder: str | None = getattr(self._config, "dynamic_lora_loading_path", None)
        path = await asyncio.to_thread(_find_adapter, name, folder)
        await self._engine.add_adapter(name, path)


def _find_adapter(name: str, folder: str | None) -> str:
    """Return the path of an adapter.

    Raises:
        ValueError: If there is no such adapter, or it is outside the folder of adapters.
    """
    path = Path(name) if folder is None else Path(folder, name)
    if folder is not None and not path.resolve().is_relative_to(Path(folder).resolve()):
        raise ValueError(f"the row's model is {name!r}, which is outside the folder of adapters, {folder}")
    if not path.is_dir():
        names = [each.name for each in Path(folder).iterdir() if each.is_dir()] if folder else []
        raise ValueError(
            f"the row's model is {name!r}, but there is no adapter in {path}.{did_you_mean(name, names)}"
        )
    return str(path)


def _engine_arguments(config: EngineProcessorConfig) -> dict[str, Any]:
    """Return engine arguments with vLLM's names."""
    made: dict[str, Any] = {}
    if config.task_type == "embed":
        made["runner"] = "pooling"
    if getattr(config, "dynamic_lora_loading_path", None) is not None:
        made["enable_lora"] = True
    for name, value in config.engine_kwargs.items():
        if name == "disable_radix_cache":
            made["enable_prefix_caching"] = not value
        elif (known := _SGLANG_ARGUMENTS.get(name, name)) is not None:
            made[known] = value
    return made


def _given(fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields that are not None. In a column of dicts, a missing field is None."""
    return {name: value for name, value in (fields or {}).items() if value is not None}


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ValueError(f"a message must be a dict with `role` and `content`, got {shown(message)}")
    made = _given(message)
    content = made.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        made["content"] = "".join(_text_of(part) for part in content)
    return made


def _text_of(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping) or part.get("type") != "text":
        raise ValueError(f"the engine takes text only, but a message has the part {shown(part)}")
    return str(part.get("text") or "")


def _check_pooling(given: Any) -> None:
    for name, value in _given(given).items():
        if name != "normalize":
            raise ValueError(f"pooling_params has no parameter {name!r}.{did_you_mean(name, ['normalize'])}")
        if value is not True:
            raise ValueError("pooling_params['normalize'] must be true: embeddings have length 1")
