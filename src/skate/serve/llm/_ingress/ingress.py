"""The ingress of an application: it answers OpenAI's endpoints and forwards requests to the models."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

import skate
from skate.serve.handle import DeploymentHandle
from skate.serve.llm._config import LLMConfig
from skate.serve.llm._ingress.registry import ModelRegistry
from skate.serve.llm._ingress.responses import (
    EventStream,
    as_request_error,
    error_response,
    json_response,
    raise_error,
)
from skate.serve.llm._protocol.base import (
    ErrorResponse,
    RawRequestInfo,
    RequestError,
    RequestModel,
    Timing,
    parse_body,
)
from skate.serve.llm._protocol.chat import ChatCompletionRequest
from skate.serve.llm._protocol.completions import CompletionRequest
from skate.serve.llm._protocol.embeddings import EmbeddingRequest, RerankRequest, ScoreRequest
from skate.serve.llm._protocol.messages import CountTokensRequest, MessagesRequest
from skate.serve.llm._protocol.responses import ResponsesRequest
from skate.serve.llm._protocol.service import (
    DetokenizeRequest,
    LoadLoraAdapterRequest,
    ModelCard,
    ModelList,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TranscriptionRequest,
    UnloadLoraAdapterRequest,
)
from skate.serve.llm._server.messages import error_body, error_event
from skate.util import metrics

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.routing import Route

__all__ = ["DEFAULT_ENDPOINTS", "OpenAiIngress"]

_ANTHROPIC: Final = "/v1/messages"  # errors of these paths have Anthropic's format
_PUBLIC_PATHS: Final = frozenset({"/health"})  # health checks of load balancers send no key
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "x-api-key"})
_HEALTH_TIMEOUT_S: Final = 3.0
_DEFAULT_OPTIONS: Final = {"max_ongoing_requests": 10_000, "ray_actor_options": {"num_cpus": 0}}

M = TypeVar("M", bound=RequestModel)


class OpenAiIngress:
    """Serve the models of an application over OpenAI's API. `build_openai_app` deploys this class.

    Each endpoint is a method, so a subclass can change or add endpoints. Set `ingress_cls_config` of `LLMServingArgs`
    to deploy a subclass and to pass additional arguments to it.

    Args:
        llm_deployments: A handle for each model.
        model_cards: A card for each model.
        lora_paths: The folder of LoRA adapters of each model that has one.
        api_keys: The keys that clients may use. Without any, clients need no key.
        allowed_origins: Origins whose web pages may call the API: "https://example.org", or "*" for all.
    """

    def __init__(
        self,
        llm_deployments: Mapping[str, DeploymentHandle[Any]],
        model_cards: Mapping[str, ModelCard],
        *,
        lora_paths: Mapping[str, str | None] | None = None,
        api_keys: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
    ) -> None:
        self._registry = ModelRegistry(llm_deployments, model_cards, lora_paths or {})
        self._keys = _ApiKeys(api_keys)
        self._allowed_origins = list(allowed_origins)

    async def check_health(self) -> None:
        """Do nothing: an ingress that answers is healthy. `health` checks the models."""

    # ------------------------------------------------------------ endpoints

    async def chat(self, body: ChatCompletionRequest, request: Request) -> Response:
        """Answer `POST /v1/chat/completions`."""
        return await self._ask("chat", body, request)

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """Answer `POST /v1/completions`."""
        return await self._ask("completions", body, request)

    async def responses(self, body: ResponsesRequest, request: Request) -> Response:
        """Answer `POST /v1/responses`."""
        return await self._ask("responses", body, request)

    async def messages(self, body: MessagesRequest, request: Request) -> Response:
        """Answer `POST /v1/messages`, Anthropic's API."""
        return await self._ask("messages", body, request)

    async def count_tokens(self, body: CountTokensRequest, request: Request) -> Response:
        """Answer `POST /v1/messages/count_tokens`, Anthropic's API."""
        return await self._ask("count_tokens", body, request)

    async def embeddings(self, body: EmbeddingRequest, request: Request) -> Response:
        """Answer `POST /v1/embeddings`."""
        return await self._ask("embeddings", body, request)

    async def score(self, body: ScoreRequest, request: Request) -> Response:
        """Answer `POST /v1/score`."""
        return await self._ask("score", body, request)

    async def rerank(self, body: RerankRequest, request: Request) -> Response:
        """Answer `POST /v1/rerank`."""
        return await self._ask("rerank", body, request)

    async def tokenize(
        self, body: TokenizeCompletionRequest | TokenizeChatRequest, request: Request
    ) -> Response:
        """Answer `POST /tokenize`."""
        return await self._ask("tokenize", body, request)

    async def detokenize(self, body: DetokenizeRequest, request: Request) -> Response:
        """Answer `POST /detokenize`."""
        return await self._ask("detokenize", body, request)

    async def transcriptions(self, body: TranscriptionRequest, request: Request) -> Response:
        """Answer `POST /v1/audio/transcriptions`.

        Raises:
            RequestError: Always, because no engine takes audio yet.
        """
        raise RequestError("The models take text only, not audio.", param="file")

    async def models(self) -> ModelList:
        """Answer `GET /v1/models`."""
        return ModelList(data=await asyncio.to_thread(self._registry.cards))

    async def model_data(self, model: str) -> ModelCard:
        """Answer `GET /v1/models/{model}`.

        Raises:
            RequestError: If there is no such model.
        """
        return self._registry.card(model)

    async def load_lora_adapter(self, body: LoadLoraAdapterRequest) -> Response:
        """Answer `POST /v1/load_lora_adapter`. A replica loads the adapter at its first request."""
        self._registry.load(body)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def unload_lora_adapter(self, body: UnloadLoraAdapterRequest) -> Response:
        """Answer `POST /v1/unload_lora_adapter` as soon as no request uses the adapter."""
        handle, path = self._registry.unload(body.lora_name)
        await _results(handle, "unload_adapter", path)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    async def health(self) -> Response:
        """Answer `GET /health`: 200 if all models have replicas whose engines make progress, otherwise 503."""
        models = self._registry.handles
        problems = await asyncio.gather(*map(self._problem_of, models))
        failed = {model: problem for model, problem in zip(models, problems, strict=True) if problem}
        if failed:
            return JSONResponse({"status": "unhealthy", "models": failed}, 503)
        return JSONResponse({"status": "ok"})

    async def _problem_of(self, model: str) -> str | None:
        """Return why a model cannot answer requests, or None."""
        try:
            results = await _results(self._registry.handles[model], "_check_ready", timeout=_HEALTH_TIMEOUT_S)
        except TimeoutError:
            return f"The engine has not answered for {_HEALTH_TIMEOUT_S:g} s."
        except Exception as error:  # whatever the engine raises
            return str(error) or type(error).__name__
        if not results and not self._registry.card(model).scales_to_zero:
            return "No replica is running."
        return None

    async def metrics(self) -> Response:
        """Answer `GET /metrics`: the metrics of the session in Prometheus's text format."""
        text = await asyncio.to_thread(metrics.prometheus_text)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def version(self) -> Response:
        """Answer `GET /version`."""
        return JSONResponse({"version": skate.__version__})

    # ------------------------------------------------------------ requests

    async def _ask(self, method: str, body: Any, request: Request) -> Response:
        """Call a method of the model that a request names, and return its answer."""
        headers = {name: value for name, value in request.headers.items() if name not in _SECRET_HEADERS}
        info = RawRequestInfo(headers, getattr(request.state, "received", time.time()))
        handle = self._registry.handle(body.model)
        events: AsyncIterator[Any] = getattr(handle, method).remote(body, info)
        try:
            first = await anext(events)
        except Exception as error:
            raise as_request_error(error) from error
        if isinstance(first, ErrorResponse):
            raise_error(first)
        if isinstance(first, str):
            is_anthropic = request.scope["path"].startswith(_ANTHROPIC)
            return EventStream(first, events, _anthropic_event if is_anthropic else _error_event)
        timing: Timing | None = getattr(first, "timing", None)
        if timing is not None:  # include the transfer from the replica
            others = timing.queue + timing.prefill + (timing.transfer or 0.0) + timing.decode
            timing.server = round(max(timing.server, time.time() - info.received - others), 6)
        return json_response(first)

    # ------------------------------------------------------------ the application

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the ASGI application of the endpoints."""
        from starlette.applications import Starlette
        from starlette.middleware.cors import CORSMiddleware
        from starlette.routing import Route

        routes = [
            Route(path, self._endpoint(name, body), methods=[verb])
            for verb, path, name, body in DEFAULT_ENDPOINTS
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={RequestError: _handle_request_error, HTTPException: _handle_http_error},
        )
        if self._allowed_origins:
            app.add_middleware(
                CORSMiddleware, allow_origins=self._allowed_origins, allow_methods=["*"], allow_headers=["*"]
            )
            return _ApiKeyMiddleware(app, self._keys)
        return _ApiKeyMiddleware(_PostDispatcher(app, routes), self._keys)

    def _endpoint(self, name: str, kind: Any) -> Callable[[Request], Any]:
        """Return the function that answers the requests of a route by calling a method."""
        answer = getattr(self, name)
        parse = _parser(kind)

        async def endpoint(request: Request) -> Response:
            if kind is TranscriptionRequest:
                result = await answer(TranscriptionRequest(), request)  # its body is a form
            elif parse is not None:
                body = parse(parse_body(await request.body()))
                takes_request = name not in ("load_lora_adapter", "unload_lora_adapter")
                result = await (answer(body, request) if takes_request else answer(body))
            else:
                result = await answer(**request.path_params)
            return result if isinstance(result, Response) else json_response(result)

        return endpoint

    @classmethod
    def get_deployment_options(cls, llm_configs: Sequence[LLMConfig] | None = None) -> dict[str, Any]:
        """Return the options of the ingress deployment.

        Args:
            llm_configs: The configurations of the models. The largest `num_ingress_replicas` among their
                `experimental_configs` is the number of replicas.
        """
        counts = [config.experimental_configs.get("num_ingress_replicas", 1) for config in llm_configs or ()]
        return {**_DEFAULT_OPTIONS, "num_replicas": max(counts, default=1)}


# Verb, path, method of the ingress, and type of the body.
DEFAULT_ENDPOINTS: Final[tuple[tuple[str, str, str, Any], ...]] = (
    ("POST", "/v1/chat/completions", "chat", ChatCompletionRequest),
    ("POST", "/v1/completions", "completions", CompletionRequest),
    ("POST", "/v1/responses", "responses", ResponsesRequest),
    ("POST", "/v1/messages", "messages", MessagesRequest),
    ("POST", "/v1/messages/count_tokens", "count_tokens", CountTokensRequest),
    ("POST", "/v1/embeddings", "embeddings", EmbeddingRequest),
    ("POST", "/v1/audio/transcriptions", "transcriptions", TranscriptionRequest),
    ("POST", "/v1/score", "score", ScoreRequest),
    ("POST", "/score", "score", ScoreRequest),
    ("POST", "/v1/rerank", "rerank", RerankRequest),
    ("POST", "/rerank", "rerank", RerankRequest),
    ("POST", "/tokenize", "tokenize", (TokenizeCompletionRequest, TokenizeChatRequest)),
    ("POST", "/detokenize", "detokenize", DetokenizeRequest),
    ("POST", "/v1/load_lora_adapter", "load_lora_adapter", LoadLoraAdapterRequest),
    ("POST", "/v1/unload_lora_adapter", "unload_lora_adapter", UnloadLoraAdapterRequest),
    ("GET", "/v1/models", "models", None),
    ("GET", "/v1/models/{model:path}", "model_data", None),
    ("GET", "/health", "health", None),
    ("GET", "/metrics", "metrics", None),
    ("GET", "/version", "version", None),
)


def _parser(kind: Any) -> Callable[[dict[str, Any]], RequestModel] | None:
    if kind is None:
        return None
    if not isinstance(kind, tuple):
        parse: Callable[[dict[str, Any]], RequestModel] = kind.parse
        return parse
    text, chat = kind
    return lambda given: (chat if "messages" in given else text).parse(given)


async def _results(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout: float | None = None
) -> list[Any]:
    """Call a method on every replica, and return the results."""
    return await handle.broadcast(method, *args).results_async(timeout_s=timeout)


class _ApiKeys:
    """The keys that clients may use. Without any, every client may use the application.

    Raises:
        ValueError: If a key is empty.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        if isinstance(keys, str):
            raise ValueError("`api_keys` must be a list of keys, not one string.")
        self._keys = [key.encode() for key in keys]
        if not all(self._keys):
            raise ValueError(
                "`api_keys` contains an empty key, which would admit clients without a key: remove it."
            )

    @property
    def are_required(self) -> bool:
        """Whether clients need a key."""
        return bool(self._keys)

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Check the key of a request: `Authorization: Bearer KEY` or, as Anthropic's clients send it, `x-api-key: KEY`.

        Raises:
            RequestError: If the key is missing or wrong.
        """
        if not self._keys or path in _PUBLIC_PATHS:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = (key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")).encode()
        # All keys are compared, each in constant time, so that the duration reveals nothing about them.
        if not sum(hmac.compare_digest(given, known) for known in self._keys):
            raise RequestError(
                "The API key is missing or wrong. Send it as `Authorization: Bearer KEY`.",
                401,
                code="invalid_api_key",
            )


class _PostDispatcher:
    """Call the endpoints of POST requests directly, because Starlette takes longer to find them than they run.

    Args:
        app: The application of all other requests.
        routes: The routes of the application.
    """

    def __init__(self, app: Starlette, routes: Sequence[Route]) -> None:
        self._app = app
        self._routes = {route.path: route for route in routes if "POST" in (route.methods or ())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = None
        if scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path"):
            route = self._routes.get(scope["path"])
        if route is None:
            await self._app(scope, receive, send)
            return
        scope.update(app=self._app, route=route, endpoint=route.endpoint, path_params={})
        request = Request(scope, receive)
        try:
            response = await route.endpoint(request)
        except RequestError as error:
            response = await _handle_request_error(request, error)
        except HTTPException as error:
            response = await _handle_http_error(request, error)
        await response(scope, receive, send)


class _ApiKeyMiddleware:
    """Record when a request arrives, and check its key."""

    def __init__(self, app: ASGIApp, keys: _ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope.setdefault("state", {})["received"] = time.time()
            if self._keys.are_required and scope["method"] != "OPTIONS":
                try:
                    self._keys.check(scope["path"], Request(scope).headers)
                except RequestError as error:
                    await _error_response_for(scope["path"], error)(scope, receive, send)
                    return
        await self._app(scope, receive, send)


def _error_response_for(path: str, error: RequestError) -> Response:
    """Return the response for an error, in the format that the clients of a path expect."""
    response = error_response(error)
    if path.startswith(_ANTHROPIC):
        headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        return JSONResponse(error_body(error.response), error.status, headers)
    return response


async def _handle_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _error_response_for(request.url.path, error)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    messages = {
        404: f"There is no endpoint {path!r}.",
        405: f"{path!r} does not accept {request.method} requests.",
    }
    message = messages.get(error.status_code, error.detail)
    return error_response(RequestError(message, error.status_code))


def _anthropic_event(error: RequestError) -> str:
    return error_event(error.response)


def _error_event(error: RequestError) -> str:
    return f"data: {error.response.to_json()}\n\ndata: [DONE]\n\n"
