"""Servers that split a model's work: one computes prompts, the other continues them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final

from skate import serve
from skate.exceptions import RayError
from skate.llm import (
    Engine,
    GenerationOutput,
    GenerationRequest,
    KVTransferError,
    PrefilledPrompt,
    PrefillEngine,
    TextGenerator,
)
from skate.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException
from skate.serve.handle import DeploymentHandle
from skate.serve.llm._config import LLMConfig
from skate.serve.llm._ingress.responses import as_request_error, raise_error
from skate.serve.llm._protocol.base import ErrorResponse, RequestError
from skate.serve.llm._server.generation import Closing, as_error_response
from skate.serve.llm._server.llm_server import LLMServer

__all__ = ["PDDecodeServer", "PDPrefillServer"]

logger = logging.getLogger("skate.serve")

# How often a prompt may be computed. It is safe to try again, because no token has been sent to the client yet.
_ATTEMPTS: Final = 3
_TRANSFER_FAILED: Final = "kv_transfer_failed"
_HEALTH_TIMEOUT_S: Final = 2.0

_numbers = itertools.count()


class _SplitServer(LLMServer):
    """A server whose engine exchanges keys and values with other engines. "auto" means the embedded engine."""

    async def __init__(self, llm_config: LLMConfig) -> None:  # type: ignore[misc]  # Serve awaits it, as Ray's does
        if str(llm_config.llm_engine).lower() == "auto":
            llm_config = llm_config.model_copy(update={"llm_engine": "torch"})
        await super().__init__(llm_config)
        self._prefill_engine = _as_prefill_engine(self.engine, llm_config)

    @classmethod
    def get_deployment_options(cls, llm_config: LLMConfig) -> dict[str, Any]:
        """Return the options of a model's deployment.

        Args:
            llm_config: The configuration of the model.

        Raises:
            NotImplementedError: If the configuration chooses vLLM.
            ValueError: If the model requests TPUs.
        """
        if str(llm_config.llm_engine).lower() == "vllm":
            raise NotImplementedError(
                "Prefill and decode can only be split between embedded engines: set llm_engine='torch', or use "
                "build_openai_app, where vLLM interleaves chunks of prefill with decode."
            )
        return super().get_deployment_options(llm_config)


class PDPrefillServer(_SplitServer):
    """A deployment that computes prompts, which a `PDDecodeServer` continues. `build_pd_openai_app` deploys both.

    It is an `LLMServer` with the method `prefill`. Keys and values are returned as an object: they are copied to shared
    memory, from a GPU through the memory of the host.

    Args:
        llm_config: The configuration of the model.
    """

    async def prefill(
        self, request: GenerationRequest, model: str | None = None
    ) -> PrefilledPrompt | ErrorResponse:
        """Compute a prompt and its first token.

        Args:
            request: The request to the engine. Its adapter is replaced by the one that `model` names.
            model: The model that the client has named.
        """
        status = 200
        try:
            self._check_awake()
            async with self._adapters.use(model) as adapter:
                # Ids are unique in a decode replica, and there may be several.
                request_id = f"{request.request_id}-{next(_numbers)}"
                return await self._prefill_engine.prefill(
                    replace(request, adapter=adapter, request_id=request_id)
                )
        except Exception as error:
            if isinstance(error, KVTransferError):
                error = _transfer_failed(error)
            failure = as_error_response(error, "prefill")
            status = failure.status
            return failure
        except asyncio.CancelledError:
            status = 499
            raise
        finally:
            self._metrics.record("prefill", status, None)


class PDDecodeServer(_SplitServer):
    """A deployment that has prompts computed by a `PDPrefillServer`, and continues them with its own engine.

    It answers all requests that generate text this way. Embeddings are computed by its own engine.

    Args:
        llm_config: The configuration of the model.
        prefill_server: A handle of the deployment that computes prompts.
    """

    async def __init__(  # type: ignore[misc]  # Serve awaits it, as Ray's does
        self,
        llm_config: LLMConfig,
        *,
        prefill_server: DeploymentHandle[Any],
        _prefill_scales_to_zero: bool = False,
    ) -> None:
        self._prefill_handle = prefill_server
        self._prefill_scales_to_zero = _prefill_scales_to_zero
        await super().__init__(llm_config)

    def _generator(self, model: str | None) -> TextGenerator:
        handle, adapter = self._prefill_handle, serve.get_multiplexed_model_id()
        if adapter:  # so that the request goes to a replica that has loaded the adapter
            handle = handle.options(multiplexed_model_id=adapter)
        return _RemotePrefill(self._prefill_engine, handle, model)

    async def reset_prefix_cache(self) -> None:
        """Clear the prefix caches of this engine and of those that compute prompts."""
        await self._prefill_handle.broadcast("reset_prefix_cache").results_async(timeout_s=None)
        await super().reset_prefix_cache()

    async def unload_adapter(self, path: str) -> None:
        """Unload the LoRA adapter at a path here and where prompts are computed, if it is loaded."""
        await self._prefill_handle.broadcast("unload_adapter", path).results_async(timeout_s=None)
        await super().unload_adapter(path)

    async def _check_ready(self) -> None:
        await super()._check_ready()
        checks = self._prefill_handle.broadcast("check_health")
        if not await checks.results_async(timeout_s=_HEALTH_TIMEOUT_S) and not self._prefill_scales_to_zero:
            raise RuntimeError("No replica that computes prompts is running.")


class _RemotePrefill:
    """Has prompts computed by another deployment, and continues them with an engine.

    Args:
        engine: The engine.
        handle: The other deployment.
        model: The model that the client has named.
    """

    def __init__(self, engine: PrefillEngine, handle: DeploymentHandle[Any], model: str | None) -> None:
        self.tokenizer = engine.tokenizer
        self.max_model_len = engine.max_model_len
        self.sampling_defaults = engine.sampling_defaults
        self._engine = engine
        self._handle = handle
        self._model = model

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationOutput]:
        """Continue a prompt. Closing the iterator aborts the request in both engines.

        Raises:
            RequestError: If the prompt could not be computed.
            EngineDeadError: If the engine that continues it has failed.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            prefilled = await self._prefill(request)
            outputs = self._engine.generate(replace(request, prefilled=prefilled))
            del prefilled  # the engine frees its memory when it has read it
            async with Closing(outputs):
                try:
                    async for output in outputs:
                        yield output
                    return
                except KVTransferError as error:  # before the first output
                    if attempt == _ATTEMPTS:
                        raise _transfer_failed(error) from error
                    logger.warning("A prompt is computed again: %s", error)

    async def _prefill(self, request: GenerationRequest) -> PrefilledPrompt:
        failure: Exception | None = None
        for _ in range(_ATTEMPTS):
            response = self._handle.prefill.remote(request, self._model)
            try:
                answer: PrefilledPrompt | ErrorResponse = await response
            except (BackPressureError, DeploymentUnavailableError) as error:
                raise as_request_error(error) from error
            except (RayError, RayServeException) as error:
                logger.warning("A prompt is computed again, because its replica failed: %s", error)
                failure = error
                continue
            finally:
                response.cancel()  # no effect on one that has arrived
            if isinstance(answer, PrefilledPrompt):
                return answer
            if answer.error.code != _TRANSFER_FAILED:
                raise_error(answer)
            failure = KVTransferError(answer.error.message)
        raise RequestError(
            f"The prompt could not be computed in {_ATTEMPTS} attempts, because replicas failed. Try again.",
            503,
            code="prefill_failed",
            retry_after=1,
        ) from failure


def _as_prefill_engine(engine: Engine, llm_config: LLMConfig) -> PrefillEngine:
    """Return an engine if it can compute prompts for others.

    Raises:
        TypeError: If it cannot.
    """
    if not isinstance(engine, PrefillEngine):
        raise TypeError(
            f"llm_engine={llm_config.llm_engine!r} returned a {type(engine).__name__}, which has no method `prefill`: "
            "use llm_engine='torch', or an engine that implements `skate.llm.PrefillEngine`."
        )
    return engine


def _transfer_failed(error: KVTransferError) -> RequestError:
    return RequestError(
        f"The prompt could not be handed over: {error}.", 503, code=_TRANSFER_FAILED, retry_after=1
    )
