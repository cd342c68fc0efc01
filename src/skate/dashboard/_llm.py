"""Language models that Serve runs: their throughput and latency, and a chat to try them."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from skate.dashboard._metrics import Metrics, Rates, Totals
from skate.dashboard._node import Node
from skate.dashboard._serve import Serve
from skate.dashboard._topics import Problem
from skate.util._metrics_export import quantiles

__all__ = ["LLM"]

MODELS_AGE_S: Final = 5.0  # seconds for which the list of models of an application is kept
ANSWER_TIMEOUT_S: Final = 300.0
LARGEST_REQUEST: Final = 10 << 20
CHUNK: Final = 1 << 16
_INGRESS: Final = "OpenAiIngress"  # the deployment that answers OpenAI's requests
_NO_QUANTILES: Final = {"p50": None, "p90": None, "p99": None}


class LLM:
    """The topic /state/llm, and the action /actions/llm/chat.

    Args:
        node: The node.
        serve: The applications of Serve.
        metrics: The metrics of the session.
    """

    def __init__(self, node: Node, serve: Serve, metrics: Metrics) -> None:
        self._node = node
        self._serve = serve
        self._metrics = metrics
        self._rates = Rates(time.monotonic)

    async def handle(self, _: Mapping[str, str], query: QueryParams) -> dict[str, Any]:
        """Return all models."""
        models = await self._models(query)
        series = await self._metrics.series()
        totals = Totals(series, "application", "model")
        tokens = {
            (name, *tags): totals.value(name, *tags)
            for name in ("llm_generated_tokens", "llm_prompt_tokens")
            for tags in totals.tags_of(name)
        }
        rates = self._rates.add(tokens)
        return {"models": [self._describe(model, totals, rates) for model in models]}

    async def _models(self, query: QueryParams) -> list[dict[str, Any]]:
        """Return the models of all applications, with their deployments."""
        state = await self._serve.handle({}, query)
        found = []
        for app in state["applications"]:
            deployments = app["deployments"]
            if not any(each["name"] == _INGRESS for each in deployments):
                continue
            if state["http"] is None or app["route"] is None:
                continue
            base = f"{state['http']}{app['route'].rstrip('/')}/v1"
            ids = await self._list(base)
            found += [
                {"id": id, "application": app["name"], "base_url": base, "deployments": deployments}
                for id in ids
            ]
        return found

    async def _list(self, base: str) -> list[str]:
        return await self._node.share(
            ("models", base), lambda: self._node.run(_list_models, base), MODELS_AGE_S
        )

    @staticmethod
    def _describe(model: dict[str, Any], totals: Totals, rates: Mapping[Any, float] | None) -> dict[str, Any]:
        tags = model["application"], model["id"]
        own = [each for each in model["deployments"] if _is_of(each["name"], model["id"])]

        def seconds(name: str) -> dict[str, float | None]:
            found = totals.histogram(name, *tags)
            return dict(_NO_QUANTILES) if found is None else quantiles(*found)

        return {
            "id": model["id"],
            "application": model["application"],
            "base_url": model["base_url"],
            "tokens_per_s": None if rates is None else rates["llm_generated_tokens", *tags],
            "prompt_tokens_per_s": None if rates is None else rates["llm_prompt_tokens", *tags],
            "tokens": totals.value("llm_generated_tokens", *tags),
            "prompt_tokens": totals.value("llm_prompt_tokens", *tags),
            "cached_prompt_tokens": totals.value("llm_cached_prompt_tokens", *tags),
            "running": sum(each["running"] for each in own),
            "waiting": sum(each["queued"] for each in own),
            "ttft": seconds("llm_time_to_first_token_s"),
            "itl": seconds("llm_inter_token_latency_s"),
        }

    async def chat(self, request: Request) -> Response:
        """Pass a chat to the endpoint of its model, and stream the answer."""
        body = await request.body()
        if len(body) > LARGEST_REQUEST:
            raise Problem(413, f"The request is larger than {LARGEST_REQUEST >> 20} MiB.")
        try:
            given = json.loads(body)
            model = given["model"]
        except (ValueError, KeyError, TypeError):
            raise Problem(400, "The request must be JSON with the fields 'model' and 'messages'.") from None
        models = await self._models(request.query_params)
        found = [each for each in models if each["id"] == model]
        if not found:
            known = ", ".join(each["id"] for each in models) or "none"
            raise Problem(404, f"There is no model {model!r}; the models are: {known}.")
        key = request.headers.get("x-api-key")
        try:
            connection, answer = await self._node.run(_post, found[0]["base_url"], body, key)
        except OSError as error:
            raise Problem(502, f"The endpoint of the model does not answer: {error}") from error
        return StreamingResponse(
            self._pass_on(connection, answer),
            answer.status,
            media_type=answer.headers.get("Content-Type", "application/json"),
        )

    async def _pass_on(
        self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse
    ) -> AsyncGenerator[bytes, None]:
        try:
            while data := await self._node.run(answer.read1, CHUNK):
                yield data
        finally:
            connection.close()  # the endpoint stops generating


def _is_of(deployment: str, model: str) -> bool:
    """Return whether a deployment serves a model: its name is that of its class and of the model."""
    return deployment.partition(":")[2] in (model, model.replace("/", "--").replace(".", "_"))


def _list_models(base: str) -> list[str]:
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.netloc, timeout=5)
    try:
        connection.request("GET", f"{parts.path}/models")
        answer = connection.getresponse()
        if answer.status != 200:
            return []  # it needs a key, or does not run yet
        return [str(each["id"]) for each in json.loads(answer.read())["data"]]
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return []  # it is starting or ending
    finally:
        connection.close()


def _post(
    base: str, body: bytes, key: str | None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_TIMEOUT_S)
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream, application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("POST", f"{parts.path}/chat/completions", body, headers)
        return connection, connection.getresponse()
    except BaseException:
        connection.close()
        raise
