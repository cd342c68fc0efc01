"""Conversations and texts as tokens: the one way from a request to a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skate.llm import Tokenizer
from skate.serve.llm._protocol.base import RequestError
from skate.serve.llm._protocol.chat import ChatMessage, Tool
from skate.serve.llm._server.constraints import tool_instructions
from skate.serve.llm._server.text_splitters import THINK_OPEN

__all__ = ["ChatPrompt", "check_context", "check_length", "check_tokens", "encode_text", "render_chat"]

# No text has tokens as long as this on average, and a longer one would take seconds to tokenize for nothing.
_MAX_CHARACTERS_PER_TOKEN = 64

# Variables of chat templates that the request's other fields decide, and the template itself, which clients must not
# replace.
_RESERVED = (
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "tokenize",
)


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
        add_generation_prompt: Whether the prompt ends with the beginning of an answer.
        continue_final_message: Whether the answer continues the last message.
        variables: Further variables of the template.

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
        except Exception as error:  # templates raise errors of many kinds about the messages
            raise RequestError(
                f"The chat template of the model rejects the messages: {error}", param="messages"
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
    """Return arguments as templates expect them, or as text if an earlier answer was cut off inside them."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _with_instructions(messages: list[dict[str, Any]], instructions: str) -> list[dict[str, Any]]:
    first = messages[0]
    if first["role"] != "system":
        return [{"role": "system", "content": instructions}, *messages]
    return [{**first, "content": f"{first['content']}\n\n{instructions}"}, *messages[1:]]


def encode_text(
    tokenizer: Tokenizer, prompt: str | list[int], *, add_special_tokens: bool, param: str
) -> list[int]:
    """Return the tokens of a prompt that is a text or already tokens.

    Raises:
        RequestError: If it is empty or has unknown tokens.
    """
    if isinstance(prompt, str):
        tokens = tokenizer.encode(prompt, add_special_tokens=add_special_tokens)
    else:
        tokens = check_tokens(tokenizer, prompt, param)
    if not tokens:
        raise RequestError(f"`{param}` is empty: a prompt needs at least one token.", param=param)
    return tokens


def check_tokens(tokenizer: Tokenizer, tokens: list[int], param: str) -> list[int]:
    """Return the tokens, if all of them are in the vocabulary.

    Raises:
        RequestError: If one is not.
    """
    for token in tokens:
        if not 0 <= token < tokenizer.vocab_size:
            raise RequestError(
                f"`{param}` contains the token {token}, but the vocabulary has the tokens 0 to "
                f"{tokenizer.vocab_size - 1}.",
                param=param,
            )
    return tokens


def check_length(characters: int, max_model_len: int, param: str) -> None:
    """Check that a text is not so long that its tokens cannot fit into the context.

    Raises:
        RequestError: If it is.
    """
    if characters > _MAX_CHARACTERS_PER_TOKEN * max_model_len:
        raise RequestError(
            f"The model's context has {max_model_len} tokens, which is too little for {characters} characters. Shorten "
            "the prompt.",
            param=param,
            code="context_length_exceeded",
        )


def check_context(prompt_tokens: int, max_tokens: int | None, max_model_len: int, param: str) -> None:
    """Check that a prompt and its answer fit into the context.

    Raises:
        RequestError: If they do not. Nothing is cut off.
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
