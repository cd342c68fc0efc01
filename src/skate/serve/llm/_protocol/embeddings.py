"""Requests and responses of embeddings, and of scores that are computed from them."""

from __future__ import annotations

from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from skate.serve.llm._protocol.base import (
    Count,
    Flag,
    Positive,
    RequestModel,
    ResponseModel,
    Text,
    Texts,
    Timing,
    UsageInfo,
    as_list,
    unix_time,
)
from skate.serve.llm._protocol.chat import ChatMessage

__all__ = [
    "EmbeddingRequest",
    "EmbeddingResponse",
    "RerankRequest",
    "RerankResponse",
    "ScoreRequest",
    "ScoreResponse",
]

MAX_INPUTS = 2048


Item = TypeVar("Item")


class _ListResponse(ResponseModel, Generic[Item]):
    """A response with one item for each input."""

    id: str
    object: Literal["list"] = "list"
    created: int = Field(default_factory=unix_time)
    model: str
    data: list[Item]
    usage: UsageInfo
    timing: Timing | None = None


class EmbeddingRequest(RequestModel):
    """An embedding request for texts, lists of tokens, or one conversation. `user` is accepted and ignored."""

    model: Text | None = None
    input: Texts | None = None
    messages: list[ChatMessage] | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Positive | None = None
    add_special_tokens: Flag = True
    chat_template_kwargs: dict[str, Any] | None = None
    user: Text | None = None

    @model_validator(mode="after")
    def _check_inputs(self) -> Self:
        if (self.input is None) == (self.messages is None):
            raise ValueError("Exactly one of `input` and `messages` must be set.")
        if self.messages is None and not self.inputs:
            raise ValueError("`input` is empty.")
        if len(self.inputs) > MAX_INPUTS:
            raise ValueError(f"`input` must have at most {MAX_INPUTS} texts, got {len(self.inputs)}.")
        return self

    @property
    def inputs(self) -> list[str | list[int]]:
        """The inputs, each a string or a list of tokens."""
        return [] if self.input is None else as_list(self.input)


class Embedding(ResponseModel):
    """The embedding of one input."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingResponse(_ListResponse[Embedding]):
    """Embeddings."""


class ScoreRequest(RequestModel):
    """A request for the similarity of texts: of one text to each of several, or of pairs."""

    model: Text | None = None
    text_1: Text | list[Text]
    text_2: Text | list[Text]
    user: Text | None = None

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        first, second = self.pairs
        if not second or not first:
            raise ValueError("`text_1` and `text_2` must not be empty.")
        if len(first) != len(second):
            raise ValueError(
                f"`text_1` must be one text, or have as many texts as `text_2`, got {len(first)} and {len(second)}."
            )
        if len(second) > MAX_INPUTS:
            raise ValueError(f"`text_2` must have at most {MAX_INPUTS} texts, got {len(second)}.")
        return self

    @property
    def pairs(self) -> tuple[list[str], list[str]]:
        """The first texts and the second texts of the pairs."""
        second = [self.text_2] if isinstance(self.text_2, str) else self.text_2
        first = [self.text_1] if isinstance(self.text_1, str) else self.text_1
        return (first * len(second) if len(first) == 1 else first), second


class Score(ResponseModel):
    """The similarity of one pair of texts, from -1 to 1."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreResponse(_ListResponse[Score]):
    """Scores."""


class RerankRequest(RequestModel):
    """A request to order documents by their similarity to a query."""

    model: Text | None = None
    query: Text
    documents: list[Text] = Field(min_length=1, max_length=MAX_INPUTS)
    top_n: Count | None = None
    return_documents: Flag = True
    user: Text | None = None


class RerankDocument(ResponseModel):
    """A document."""

    text: str


class RerankResult(ResponseModel):
    """A document and its similarity to the query."""

    index: int
    document: RerankDocument | None = None
    relevance_score: float


class RerankResponse(ResponseModel):
    """Documents, the most similar first."""

    id: str
    model: str
    results: list[RerankResult]
    usage: UsageInfo
    timing: Timing | None = None
