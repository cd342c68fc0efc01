"""Grammars for structured answers and tool calls.

A tool call has the format of Hermes and Qwen, with fixed white space, so that it can be parsed exactly:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call>
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skate.llm import Grammar, Tokenizer
from skate.serve.llm._protocol.base import RequestError
from skate.serve.llm._protocol.chat import ChatCompletionRequest, NamedToolChoice, ResponseFormat, Tool
from skate.serve.llm._protocol.sampling import StructuredOutputs
from skate.serve.llm._server.text_splitters import CALL_CLOSE, CALL_OPEN, THINK_CLOSE

__all__ = ["AnswerConstraint", "answer_grammar", "chat_grammar", "tool_instructions", "tools_of"]

_MAX_SCHEMA = 256 * 1024  # characters
_COMPACT = {"whitespace_flexible": False}
_PYTHON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class AnswerConstraint:
    """A constraint on the answer, as a separate grammar and as a rule of a Lark grammar."""

    grammar: Grammar
    rule: str


def answer_grammar(
    format: ResponseFormat | None, outputs: StructuredOutputs | None
) -> AnswerConstraint | None:
    """Return the constraint that a request puts on the answer, or None.

    Raises:
        RequestError: If it is invalid.
    """
    if format is not None and format.type != "text" and outputs is not None:
        raise RequestError(
            "`response_format` and `structured_outputs` cannot both be set.", param="response_format"
        )
    if outputs is not None:
        return _structured(outputs)
    if format is None or format.type == "text":
        return None
    if format.type == "json_object":
        return _any_object()
    assert format.json_schema is not None
    return _json_schema(format.json_schema.schema_, "response_format.json_schema.schema")


def _structured(outputs: StructuredOutputs) -> AnswerConstraint:
    if outputs.json_object:
        return _any_object()
    if outputs.json_ is not None:
        schema = outputs.json_
        if isinstance(schema, str):
            try:
                schema = json.loads(schema)
            except (ValueError, RecursionError) as error:
                raise RequestError(
                    f"`structured_outputs.json` is not valid JSON: {error}.", param="structured_outputs.json"
                ) from None
        return _json_schema(schema, "structured_outputs.json")
    if outputs.regex is not None:
        escaped = outputs.regex.replace("\\/", "/").replace("/", "\\/").replace("\n", "\\n")
        return AnswerConstraint(Grammar(kind="regex", text=outputs.regex), f"/{escaped}/")
    if outputs.choice is not None:
        rule = " | ".join(map(_literal, outputs.choice))
        return AnswerConstraint(Grammar(kind="lark", text=f"start: {rule}\n"), f"({rule})")
    assert outputs.grammar is not None
    return AnswerConstraint(Grammar(kind="lark", text=outputs.grammar), f"%lark {{\n{outputs.grammar}\n}}")


def _any_object() -> AnswerConstraint:
    return AnswerConstraint(
        Grammar(kind="json"), f"%json {json.dumps({'type': 'object', 'x-guidance': _COMPACT})}"
    )


def _json_schema(schema: Any, param: str) -> AnswerConstraint:
    if not isinstance(schema, dict | bool):
        raise RequestError(f"`{param}` must be a JSON schema, which is an object.", param=param)
    text = _dump(schema, _COMPACT, param)
    return AnswerConstraint(Grammar(kind="json_schema", text=text), f"%json {text}")


def _dump(schema: dict[str, Any] | bool, whitespace: Mapping[str, Any], param: str) -> str:
    """Return a schema as text. Without fixed white space, a weak model may generate line breaks forever."""
    text = json.dumps({"x-guidance": whitespace, **schema} if isinstance(schema, dict) else schema)
    if len(text) > _MAX_SCHEMA:
        raise RequestError(
            f"`{param}` has {len(text)} characters, but the limit is {_MAX_SCHEMA}.",
            param=param,
        )
    return text


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def chat_grammar(
    request: ChatCompletionRequest, tokenizer: Tokenizer, *, starts_in_reasoning: bool
) -> Grammar | None:
    """Return the grammar of an answer, or None if the text is unconstrained.

    With tools, `tool_choice` decides whether the answer must be a call (`required`, or a named tool) or may be one
    (`auto`). A call can begin anywhere in free text.

    Args:
        request: The request.
        tokenizer: The tokenizer, which may have special tokens for the markers of calls and reasoning.
        starts_in_reasoning: Whether free text up to `</think>` comes first.

    Raises:
        RequestError: If a schema is invalid.
    """
    answer = answer_grammar(request.response_format, request.structured_outputs)
    tools = tools_of(request)
    if not tools:
        if answer is None or not starts_in_reasoning:
            return None if answer is None else answer.grammar
        rules = [f"start: thought WS? answer\nanswer: {answer.rule}"]
    else:
        calls = "call (WS? call)*" if request.parallel_tool_calls else "call"
        thought = "thought WS? " if starts_in_reasoning else ""
        if request.tool_choice not in (None, "auto"):
            rules = [f"start: {thought}{calls}"]
        elif answer is not None:
            rules = [f"start: {thought}(answer | {calls})\nanswer: {answer.rule}"]
        else:
            more = "(WS? call)* WS?" if request.parallel_tool_calls else "WS?"
            rules = [f"start: {thought}(TEXT? | opened_call {more})"]
        rules += _call_rules(tools, tokenizer)
    rules += _reasoning_rules(tokenizer) if starts_in_reasoning else []
    rules.append(r"WS: /[ \t\r\n]{1,4}/")
    return Grammar(kind="lark", text="\n".join(rules) + "\n")


def tools_of(request: ChatCompletionRequest) -> list[Tool]:
    """Return the tools that the answer may call."""
    if request.tools is None or request.tool_choice == "none":
        return []
    if isinstance(request.tool_choice, NamedToolChoice):
        name = request.tool_choice.function.name
        return [tool for tool in request.tools if tool.function.name == name]
    return request.tools


def _call_rules(tools: Sequence[Tool], tokenizer: Tokenizer) -> list[str]:
    names = [f"f{number}" for number in range(len(tools))]
    body = f'"\\n" ({" | ".join(names)}) "\\n"'
    opening, closing = _marker(CALL_OPEN, tokenizer), _marker(CALL_CLOSE, tokenizer)
    rules = [f"call: {opening} {body} {closing}"]
    if opening.startswith('"'):
        # Free text ends where the marker begins.
        rules += [
            "TEXT: /(?s:.+)/ & ~/(?s:.*)<tool_call>(?s:.*)/",
            "opening[lazy]: /(?s:.*)<tool_call>/",
            f"opened_call: opening {body} {closing}",
        ]
    else:
        rules += ["TEXT: /(?s:.+)/ & ~/(?s:.*)<tool_call>(?s:.*)/", "opened_call: TEXT? call"]
    for name, tool in zip(names, tools, strict=True):
        head = _literal(f'{{"name": "{tool.function.name}", "arguments": ')
        rules.append(f'{name}: {head} {name}_arguments "}}"')
        rules.append(f"{name}_arguments: %json {_parameters(tool)}")
    return rules


def _parameters(tool: Tool) -> str:
    given = tool.function.parameters
    param = f"tools.{tool.function.name}.parameters"
    if not given:
        given = {"type": "object", "properties": {}, "additionalProperties": False}
    if given.get("type", "object") != "object":
        raise RequestError(
            f"`{param}` must be the schema of an object, got type {given['type']!r}.", param=param
        )
    return _dump({"type": "object", **given}, _PYTHON_STYLE, param)


def _reasoning_rules(tokenizer: Tokenizer) -> list[str]:
    closing = _marker(THINK_CLOSE, tokenizer)
    if closing.startswith('"'):
        return [r"thought: closing_thought", r"closing_thought[lazy]: /(?s:.*)<\/think>/"]
    return [f"thought: THOUGHT? {closing}", r"THOUGHT: /(?s:.+)/ & ~/(?s:.*)<\/think>(?s:.*)/"]


def _marker(marker: str, tokenizer: Tokenizer) -> str:
    """Return a marker as a Lark symbol: its token, or its text if it has no token."""
    tokens = tokenizer.encode(marker, add_special_tokens=False)
    return f"<[{tokens[0]}]>" if len(tokens) == 1 else _literal(marker)


def tool_instructions(tools: Sequence[Tool]) -> str:
    """Return a description of tools for a model whose chat template does not describe them."""
    signatures = "\n".join(
        json.dumps({"type": "function", "function": tool.function.model_dump(exclude_none=True)})
        for tool in tools
    )
    return (
        "You may call these functions:\n"
        f"<tools>\n{signatures}\n</tools>\n"
        "To call a function, write its name and its arguments as a JSON object between tags:\n"
        f'{CALL_OPEN}\n{{"name": <function name>, "arguments": <arguments>}}\n{CALL_CLOSE}'
    )
