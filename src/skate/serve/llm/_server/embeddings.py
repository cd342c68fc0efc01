"""Embeddings, and the similarity of texts, which is computed from them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence

from skate.llm import Engine
from skate.serve.llm._protocol.base import RawRequestInfo, RequestError, new_id
from skate.serve.llm._protocol.embeddings import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    RerankDocument,
    RerankRequest,
    RerankResponse,
    RerankResult,
    Score,
    ScoreRequest,
    ScoreResponse,
)
from skate.serve.llm._server.generation import Account
from skate.serve.llm._server.prompts import encode_texts, render_chat

__all__ = ["answer_embeddings", "answer_rerank", "answer_score"]


async def answer_embeddings(
    engine: Engine, request: EmbeddingRequest, model: str, info: RawRequestInfo | None
) -> EmbeddingResponse:
    """Return the embeddings of the inputs."""
    account = Account(info)
    prompts: list[list[int]]
    if request.messages is not None:
        variables = request.chat_template_kwargs
        prompts = [
            render_chat(
                engine.tokenizer, request.messages, add_generation_prompt=False, variables=variables
            ).tokens
        ]
    else:
        prompts = await encode_texts(
            engine, request.inputs, add_special_tokens=request.add_special_tokens, param="input"
        )
    vectors = await _embed(engine, prompts, account, "input")
    if request.dimensions is not None and request.dimensions != len(vectors[0]):
        raise RequestError(
            f"The model's embeddings have {len(vectors[0])} dimensions and cannot be reduced to "
            f"{request.dimensions}.",
            param="dimensions",
        )
    as_text = request.encoding_format == "base64"
    return EmbeddingResponse(
        id=new_id("embd-"),
        model=model,
        data=[
            Embedding(index=index, embedding=_as_base64(vector) if as_text else vector)
            for index, vector in enumerate(vectors)
        ],
        usage=account.usage,
        timing=account.timing,
    )


async def answer_score(
    engine: Engine, request: ScoreRequest, model: str, info: RawRequestInfo | None
) -> ScoreResponse:
    """Return the similarity of each pair of texts."""
    account = Account(info)
    first, second = request.pairs
    scores = await _similarities(engine, first, second, account, "text_1")
    return ScoreResponse(
        id=new_id("score-"),
        model=model,
        data=[Score(index=index, score=score) for index, score in enumerate(scores)],
        usage=account.usage,
        timing=account.timing,
    )


async def answer_rerank(
    engine: Engine, request: RerankRequest, model: str, info: RawRequestInfo | None
) -> RerankResponse:
    """Return the documents, sorted by their similarity to the query."""
    account = Account(info)
    documents = request.documents
    scores = await _similarities(engine, [request.query] * len(documents), documents, account, "documents")
    order = sorted(range(len(documents)), key=lambda index: -scores[index])
    count = len(order) if request.top_n is None else request.top_n
    return RerankResponse(
        id=new_id("rerank-"),
        model=model,
        results=[
            RerankResult(
                index=index,
                document=RerankDocument(text=documents[index]) if request.return_documents else None,
                relevance_score=scores[index],
            )
            for index in order[:count]
        ],
        usage=account.usage,
        timing=account.timing,
    )


async def _similarities(
    engine: Engine, first: Sequence[str], second: Sequence[str], account: Account, param: str
) -> list[float]:
    """Return the cosine similarity of each pair. A text that occurs several times is embedded once."""
    texts = list(dict.fromkeys([*first, *second]))
    prompts = await encode_texts(engine, texts, add_special_tokens=True, param=param)
    vectors = dict(zip(texts, await _embed(engine, prompts, account, param), strict=True))
    return [
        sum(x * y for x, y in zip(vectors[a], vectors[b], strict=True))
        for a, b in zip(first, second, strict=True)
    ]


async def _embed(engine: Engine, prompts: list[list[int]], account: Account, param: str) -> list[list[float]]:
    for prompt in prompts:
        account.add_prompt(len(prompt))
        if len(prompt) > engine.max_model_len:
            raise RequestError(
                f"A text has {len(prompt)} tokens, which do not fit into the model's context of "
                f"{engine.max_model_len} tokens. Shorten it.",
                param=param,
                code="context_length_exceeded",
            )
    return await engine.embed(prompts)


def _as_base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
