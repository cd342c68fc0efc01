"""The deployment that runs an engine and answers requests with it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from skate import serve
from skate.llm import Engine, PrefixCacheEngine, TextGenerator, WorkerEngine
from skate.serve.config import RequestRouterConfig
from skate.serve.context import _batch_parts
from skate.serve.llm._config import LLMConfig
from skate.serve.llm._engines import start_engine
from skate.serve.llm._imports import import_object
from skate.serve.llm._protocol.base import ErrorResponse, RawRequestInfo, RequestError, ResponseModel
from skate.serve.llm._protocol.chat import ChatCompletionRequest, ChatCompletionResponse
from skate.serve.llm._protocol.completions import CompletionRequest, CompletionResponse
from skate.serve.llm._protocol.embeddings import (
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
)
from skate.serve.llm._protocol.messages import (
    CountTokensRequest,
    CountTokensResponse,
    MessagesRequest,
    MessagesResponse,
)
from skate.serve.llm._protocol.responses import Response, ResponsesRequest
from skate.serve.llm._protocol.service import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeResponse,
    TranscriptionRequest,
)
from skate.serve.llm._server.adapters import Adapters
from skate.serve.llm._server.chat import ChatRun, answer_chat, stream_chat
from skate.serve.llm._server.completions import CompletionRun, answer_completion, stream_completion
from skate.serve.llm._server.embeddings import answer_embeddings, answer_rerank, answer_score
from skate.serve.llm._server.generation import DONE, Account, as_error_response, event
from skate.serve.llm._server.messages import (
    MessagesRun,
    answer_message,
    count_tokens,
    error_event,
    stream_message,
)
from skate.serve.llm._server.metrics import ServerMetrics
from skate.serve.llm._server.placement import deployment_options
from skate.serve.llm._server.prompts import check_length, check_tokens, render_chat
from skate.serve.llm._server.responses import ResponsesRun, answer_response, stream_response
from skate.serve.llm.request_router import KVAwareRouter

__all__ = ["LLMServer"]

logger = logging.getLogger("skate.serve")


def _error_events(error: ErrorResponse) -> str:
    """Return the events that end a stream with an error."""
    return event(error.to_json()) + DONE


class LLMServer:
    """A deployment that answers requests with an engine. Use `build_llm_deployment` to create one.

    The methods that answer requests take the request and, optionally, the HTTP request that it came from. They return
    asynchronous generators, so call them with `handle.options(stream=True)`. A request with `stream` yields server-sent
    events as text. Any other request yields one response. A request that fails before its first event yields one
    `ErrorResponse`.

    Args:
        llm_config: The configuration of the model.

    Example:
        >>> from skate import serve
        >>> from skate.serve.llm import LLMConfig, LLMServer
        >>> config = LLMConfig(
        ...     model_loading_config={"model_id": "tiny"}, accelerator_config={"kind": "cpu"}
        ... )
        >>> app = serve.deployment(LLMServer).options(**LLMServer.get_deployment_options(config)).bind(config)
    """

    async def __init__(self, llm_config: LLMConfig) -> None:  # type: ignore[misc]  # Serve awaits it, as Ray's does
        self._config = llm_config
        self._is_sleeping = False
        self._is_paused = False
        self._is_kv_aware = _is_kv_aware(llm_config)
        await self._call_back("on_before_node_init")
        self.engine: Engine = await asyncio.to_thread(start_engine, llm_config)
        await self._call_back("on_after_node_init")
        self._adapters = Adapters(self.engine, llm_config)
        self._metrics = ServerMetrics(llm_config.model_id, is_enabled=llm_config.log_engine_metrics)

    async def _call_back(self, hook: str) -> None:
        config = self._config.callback_config
        if config.callback_class is None:
            return
        try:
            if not hasattr(self, "_callback"):
                kind = config.callback_class
                kind = import_object("callback_class", kind) if isinstance(kind, str) else kind
                self._callback = kind(llm_config=self._config, **config.callback_kwargs)
            result = getattr(self._callback, hook, lambda: None)()
            if inspect.isawaitable(result):
                await result
        except Exception:
            if config.raise_error_on_callback:
                raise
            logger.exception("The callback %s of model %s failed.", hook, self._config.model_id)

    # ------------------------------------------------------------ requests

    async def chat(
        self, request: ChatCompletionRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[str | ChatCompletionResponse | ErrorResponse]:
        """Answer a conversation."""
        return self._generate("chat", request, raw_request_info, ChatRun, answer_chat, stream_chat)

    async def completions(
        self, request: CompletionRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[str | CompletionResponse | ErrorResponse]:
        """Continue prompts."""
        return self._generate(
            "completions", request, raw_request_info, CompletionRun, answer_completion, stream_completion
        )

    async def responses(
        self, request: ResponsesRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[str | Response | ErrorResponse]:
        """Answer a request of the Responses API. Nothing is stored."""
        return self._generate(
            "responses", request, raw_request_info, ResponsesRun, answer_response, stream_response
        )

    async def messages(
        self, request: MessagesRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[str | MessagesResponse | ErrorResponse]:
        """Answer a request of Anthropic's Messages API."""
        return self._generate(
            "messages", request, raw_request_info, MessagesRun, answer_message, stream_message, error_event
        )

    async def count_tokens(
        self, request: CountTokensRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[CountTokensResponse | ErrorResponse]:
        """Return the number of tokens of a conversation, in Anthropic's format."""
        return self._answer_once("count_tokens", request, raw_request_info, count_tokens)

    async def embeddings(
        self, request: EmbeddingRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[EmbeddingResponse | ErrorResponse]:
        """Return the embeddings of texts."""
        return self._answer_once("embeddings", request, raw_request_info, answer_embeddings)

    async def score(
        self, request: ScoreRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[ScoreResponse | ErrorResponse]:
        """Return the similarity of texts: the cosine similarity of their embeddings."""
        return self._answer_once("score", request, raw_request_info, answer_score)

    async def rerank(
        self, request: RerankRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[RerankResponse | ErrorResponse]:
        """Order documents by their similarity to a query."""
        return self._answer_once("rerank", request, raw_request_info, answer_rerank)

    async def tokenize(
        self,
        request: TokenizeCompletionRequest | TokenizeChatRequest,
        raw_request_info: RawRequestInfo | None = None,
    ) -> AsyncGenerator[TokenizeResponse | ErrorResponse]:
        """Return the tokens of a text or a conversation."""

        async def answer(engine: Engine, *_: Any) -> TokenizeResponse:
            texts = (
                [request.prompt]
                if isinstance(request, TokenizeCompletionRequest)
                else [message.text for message in request.messages]
            )
            check_length(sum(map(len, texts)), engine.max_model_len, "prompt")
            tokens = await asyncio.to_thread(_tokenize, engine, request)
            strings = (
                [engine.tokenizer.token_text(token) for token in tokens]
                if request.return_token_strs
                else None
            )
            return TokenizeResponse(
                count=len(tokens), max_model_len=engine.max_model_len, tokens=tokens, token_strs=strings
            )

        return self._answer_once("tokenize", request, raw_request_info, answer)

    async def detokenize(
        self, request: DetokenizeRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[DetokenizeResponse | ErrorResponse]:
        """Return the text of tokens."""

        async def answer(engine: Engine, *_: Any) -> DetokenizeResponse:
            tokens = check_tokens(engine.tokenizer, request.tokens, "tokens")
            return DetokenizeResponse(prompt=engine.tokenizer.decode(tokens, skip_special_tokens=False))

        return self._answer_once("detokenize", request, raw_request_info, answer)

    async def transcriptions(
        self, request: TranscriptionRequest, raw_request_info: RawRequestInfo | None = None
    ) -> AsyncGenerator[ErrorResponse]:
        """Return an error, because no engine takes audio yet."""

        async def answer(*_: Any) -> ErrorResponse:
            raise RequestError("The model does not take audio.", param="file")

        return self._answer_once("transcriptions", request, raw_request_info, answer)

    async def _generate(
        self,
        method: str,
        request: Any,
        info: RawRequestInfo | None,
        make: Callable[..., Any],
        answer: Callable[..., Awaitable[ResponseModel]],
        stream: Callable[..., AsyncGenerator[str]],
        last_events: Callable[[ErrorResponse], str] = _error_events,
    ) -> AsyncGenerator[Any]:
        """Run a request on the engine, and yield its events or its response."""
        account: Account | None = None
        has_begun = False
        status = 200
        try:
            self._check_awake()
            model = request.model or self._config.model_id
            async with self._adapters.use(request.model) as adapter:
                run = make(self._generator(request.model), request, adapter, info)
                account = run.account
                if not request.stream:
                    yield await answer(run, model)
                    return
                _batch_parts()
                async with aclosing(stream(run, model)) as events:
                    async for each in events:
                        has_begun = True
                        yield each
        except Exception as error:
            failure = as_error_response(error, method)
            status = failure.status
            if has_begun:
                yield last_events(failure)
            else:
                yield failure
        except (asyncio.CancelledError, GeneratorExit):
            status = 499  # the client has disconnected
            raise
        finally:
            self._metrics.record(method, status, account)

    def _generator(self, model: str | None) -> TextGenerator:
        """Return what generates the text of a request.

        Args:
            model: The model that the request names.
        """
        return self.engine

    async def _answer_once(
        self,
        method: str,
        request: Any,
        info: RawRequestInfo | None,
        answer: Callable[..., Awaitable[ResponseModel]],
    ) -> AsyncGenerator[Any]:
        """Answer a request that does not generate text."""
        status = 200
        try:
            self._check_awake()
            async with self._adapters.use(request.model):
                yield await answer(self.engine, request, request.model or self._config.model_id, info)
        except Exception as error:
            failure = as_error_response(error, method)
            status = failure.status
            yield failure
        finally:
            self._metrics.record(method, status, None)

    def _check_awake(self) -> None:
        if self._is_sleeping:
            raise RequestError(
                "The model is asleep. Wake it up first.", 503, code="model_asleep", retry_after=1
            )

    # ------------------------------------------------------------ control

    async def check_health(self) -> None:
        """Raise an error if the engine has failed or makes no progress. Serve then replaces the replica."""
        await self.engine.check_health()

    async def _check_ready(self) -> None:
        """Raise an error if the model cannot answer requests, which `GET /health` reports."""
        await self.check_health()

    async def record_routing_stats(self) -> dict[str, Any]:
        """Return what routers need to know of the replica: for a `KVAwareRouter`, the cached prefixes."""
        if not self._is_kv_aware or not isinstance(self.engine, PrefixCacheEngine):
            return {}
        cached = await self.engine.cached_prefixes()
        return {
            "block_size": cached.block_size,
            "weights_version": cached.weights_version,
            "blocks": cached.blocks,
        }

    async def sleep(self, level: int = 1, *, weights: bool = True, kv_cache: bool = True, **_: Any) -> None:
        """Free the memory of the engine. No request may be running.

        Args:
            level: Has no effect, because vLLM's levels 1 and 2 both free the weights and the KV cache.
            weights: Whether to free the weights.
            kv_cache: Whether to free the KV cache.
        """
        await self.engine.sleep(weights=weights, kv_cache=kv_cache)
        self._is_sleeping = True

    async def wakeup(self, **_: Any) -> None:
        """Undo `sleep`."""
        await self.engine.wake_up()
        self._is_sleeping = False

    async def is_sleeping(self) -> bool:
        """Return whether the engine is asleep."""
        return self._is_sleeping

    async def pause(self, **_: Any) -> None:
        """Stop generating until `resume` is called. Requests are kept."""
        await self.engine.pause()
        self._is_paused = True

    async def resume(self, **_: Any) -> None:
        """Continue after `pause`."""
        await self.engine.resume()
        self._is_paused = False

    async def is_paused(self) -> bool:
        """Return whether the engine is paused."""
        return self._is_paused

    async def reset_prefix_cache(self) -> None:
        """Clear the prefix cache."""
        await self.engine.reset_prefix_cache()

    async def unload_adapter(self, path: str) -> None:
        """Unload the LoRA adapter at a path, if it is loaded."""
        await self._adapters.unload(path)

    async def start_profile(self) -> None:
        """Start to record what the engine computes. It needs `engine_kwargs["profiler_config"]`.

        Raises:
            ValueError: If the engine has no `profiler_config`, or records already.
            NotImplementedError: If the engine has no profiler.
        """
        await self._worker_engine("start_profile").start_profile()

    async def stop_profile(self) -> None:
        """Stop recording, and write a trace to the folder that `profiler_config` names.

        Raises:
            ValueError: If nothing is recorded.
            NotImplementedError: If the engine has no profiler.
        """
        await self._worker_engine("stop_profile").stop_profile()

    async def collective_rpc(
        self,
        method: str,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """Call a method of every worker of the engine, and return the results.

        The embedded engine has one worker, whose methods are those of the engine, such as `update_weights`.

        Args:
            method: The method of the workers.
            timeout: The timeout in seconds; None for no limit.
            args: The arguments of the method.
            kwargs: The keyword arguments of the method.

        Raises:
            ValueError: If there is no such method.
            TimeoutError: If the workers do not answer in time.
            NotImplementedError: If the engine's workers cannot be called.
        """
        return await self._worker_engine("collective_rpc").collective_rpc(method, timeout, args, kwargs)

    def _worker_engine(self, method: str) -> WorkerEngine:
        if not isinstance(self.engine, WorkerEngine):
            raise NotImplementedError(
                f"{method} needs an engine that implements `skate.llm.WorkerEngine`, and {type(self.engine).__name__} "
                "does not."
            )
        return self.engine

    async def llm_config(self) -> LLMConfig:
        """Return the configuration of the model."""
        return self._config

    async def __del__(self) -> None:
        engine: Engine | None = getattr(self, "engine", None)
        if engine is not None:
            await engine.close()

    @classmethod
    def as_deployment(cls, deployment_options: Mapping[str, Any] | None = None) -> serve.Deployment[Any]:
        """Return a deployment of the class. `build_llm_deployment` replaces this method.

        Args:
            deployment_options: Options of the deployment, such as those of `LLMConfig.get_serve_options`.
        """
        deployment: serve.Deployment[Any] = serve.deployment(cls).options(**(deployment_options or {}))
        return deployment

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Return the options of a model's deployment.

        Without `accelerator_config`, `accelerator_type` and `placement_group_config`, a replica gets GPUs if the
        session has any. This starts a session.

        Args:
            llm_config: The configuration of the model.

        Raises:
            ValueError: If the model requests TPUs.
        """
        return deployment_options(llm_config)


def _is_kv_aware(llm_config: LLMConfig) -> bool:
    """Return whether a configuration chooses a `KVAwareRouter`, which needs reports of the replicas."""
    config = llm_config.deployment_config.get("request_router_config")
    if isinstance(config, Mapping):
        config = RequestRouterConfig(**config)
    if config is None:
        return False
    router = config.get_request_router_class()
    return isinstance(router, type) and issubclass(router, KVAwareRouter)


def _tokenize(engine: Engine, request: TokenizeCompletionRequest | TokenizeChatRequest) -> list[int]:
    if isinstance(request, TokenizeCompletionRequest):
        return engine.tokenizer.encode(request.prompt, add_special_tokens=request.add_special_tokens)
    return render_chat(
        engine.tokenizer,
        request.messages,
        tools=request.tools,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=request.continue_final_message,
        variables=request.chat_template_kwargs,
    ).tokens
