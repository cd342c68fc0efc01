"""Turn conversations and texts into tokens. Every request gets its prompt here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from skate.llm import TextGenerator, Tokenizer
from skate.serve.llm._protocol.base import RequestError
from skate.serve.llm._protocol.chat import ChatMessage, Tool
from skate.serve.llm._server.constraints import tool_instructions
from skate.serve.llm._server.text_splitters import THINK_OPEN

__all__ = [
    "ChatPrompt",
    "check_context",
    "check_length",
    "check_tokens",
    "encode_texts",
    "render_chat",
    "run_tokenizer",
]

# The average token of a text is shorter than this, so a longer text cannot fit and is rejected before tokenization.
_MAX_CHARACTERS_PER_TOKEN = 64
_LONG_TEXT = 16_384  # characters

# Variables of chat templates that other fields of the request set, and the template, which clients must not replace.
_RESERVED = (
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """The prompt of a conversation.

    Args:
        tokens: Its tokens.
        starts_in_reasoning: Whether it ends with `<think>`, so that the answer starts inside the reasoning.
    """

    tokens: list[int]
    starts_in_reasoning: bool = False


def render_chat(
    tokenizer: Tokenizer,
    messages: Sequence[ChatMessage],
    *,
    tools: Sequence[Tool] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    variables: Mapping[str, Any] | None = None,
) -> ChatPrompt:
    """Return the prompt of a conversation.

    Args:
        tokenizer: The tokenizer, which has the chat template.
        messages: The conversation.
        tools: The tools that the answer may call.
        add_generation_prompt: Whether the prompt ends with the start of an answer.
        continue_final_message: Whether the answer continues the last message.
        variables: Additional variables of the template.

    Raises:
        RequestError: If the model has no chat template, or its template rejects the conversation.
    """
    if not tokenizer.has_chat_template:
        raise RequestError(
            "The model has no chat template, so it cannot take `messages`. Use /v1/completions.",
            param="messages",
        )
    for name in variables or ():
        if name in _RESERVED:
            raise RequestError(
                f"`chat_template_kwargs` must not contain {name!r}.",
                param="chat_template_kwargs",
            )

    def render(given: list[dict[str, Any]], described: list[dict[str, Any]] | None) -> str:
        try:
            return tokenizer.apply_chat_template(
                given,
                tools=described,
                add_generation_prompt=add_generation_prompt and not continue_final_message,
                continue_final_message=continue_final_message,
                **(variables or {}),
            )
        except Exception as error:  # a template can raise any error
            raise RequestError(
                f"The model's chat template rejected the messages: {error}", param="messages"
            ) from error

    given = [_as_template_message(message) for message in messages]
    described = [tool.model_dump(exclude_none=True) for tool in tools or ()]
    text = render(given, described or None)
    if described and text == render(given, None):  # the template does not mention tools
        text = render(_with_instructions(given, tool_instructions(tools or ())), None)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    return ChatPrompt(tokens, starts_in_reasoning=text.rstrip().endswith(THINK_OPEN))


def _as_template_message(message: ChatMessage) -> dict[str, Any]:
    made: dict[str, Any] = {
        "role": "system" if message.role == "developer" else message.role,
        "content": message.text,
    }
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)},
            }
            for call in message.tool_calls
        ]
    for name in ("name", "tool_call_id"):
        if (value := getattr(message, name)) is not None:
            made[name] = value
    if (reasoning := message.reasoning_content or message.reasoning) is not None:
        made["reasoning_content"] = reasoning
    return made


def _arguments(text: str) -> Any:
    """Return the parsed arguments, or the text itself if the earlier answer was cut off inside it."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _with_instructions(messages: list[dict[str, Any]], instructions: str) -> list[dict[str, Any]]:
    first = messages[0]
    if first["role"] != "system":
        return [{"role": "system", "content": instructions}, *messages]
    return [{**first, "content": f"{first['content']}\n\n{instructions}"}, *messages[1:]]


async def run_tokenizer(tokenize: Callable[[], T], characters: int) -> T:
    """Call a function that tokenizes a text. A long text is tokenized in a thread, so that other requests continue."""
    return await asyncio.to_thread(tokenize) if characters > _LONG_TEXT else tokenize()


async def encode_texts(
    engine: TextGenerator, texts: Sequence[str | list[int]], *, add_special_tokens: bool, param: str
) -> list[list[int]]:
    """Return the tokens of texts, each of which may already be a list of tokens.

    Raises:
        RequestError: If a text is empty, too long, or has unknown tokens.
    """
    for text in texts:
        check_length(len(text), engine.max_model_len, param)

    def encode() -> list[list[int]]:
        return [_encode(engine.tokenizer, text, add_special_tokens, param) for text in texts]

    return await run_tokenizer(encode, sum(map(len, texts)))


def _encode(tokenizer: Tokenizer, text: str | list[int], add_special_tokens: bool, param: str) -> list[int]:
    if isinstance(text, str):
        tokens = tokenizer.encode(text, add_special_tokens=add_special_tokens)
    else:
        tokens = check_tokens(tokenizer, text, param)
    if not tokens:
        raise RequestError(f"`{param}` is empty: a prompt needs at least one token.", param=param)
    return tokens


def check_tokens(tokenizer: Tokenizer, tokens: list[int], param: str) -> list[int]:
    """Return the tokens, if all of them are in the vocabulary.

    Raises:
        RequestError: If one is not.
    """
    size = tokenizer.vocab_size
    if tokens and not (min(tokens) >= 0 and max(tokens) < size):
        unknown = next(token for token in tokens if not 0 <= token < size)
        raise RequestError(
            f"`{param}` contains the token {unknown}, but the vocabulary has the tokens 0 to {size - 1}.",
            param=param,
        )
    return tokens


def check_length(characters: int, max_model_len: int, param: str) -> None:
    """Check that a text is short enough that its tokens may fit into the context.

    Raises:
        RequestError: If it is not.
    """
    if characters > _MAX_CHARACTERS_PER_TOKEN * max_model_len:
        raise RequestError(
            f"The prompt has {characters} characters, which do not fit into the model's context of {max_model_len} "
            "tokens. Shorten it.",
            param=param,
            code="context_length_exceeded",
        )


def check_context(prompt_tokens: int, max_tokens: int | None, max_model_len: int, param: str) -> None:
    """Check that a prompt and its answer fit into the context.

    Raises:
        RequestError: If they do not. Nothing is truncated.
    """
    wanted = max_tokens or 1
    if prompt_tokens + wanted <= max_model_len:
        return
    answer = f" and {max_tokens} for the answer" if max_tokens else " and leaves no room for an answer"
    raise RequestError(
        f"The model's context has {max_model_len} tokens, but the request needs {prompt_tokens + wanted}: the prompt "
        f"has {prompt_tokens} tokens{answer}. Shorten the prompt or the answer.",
        param=param,
        code="context_length_exceeded",
    )
