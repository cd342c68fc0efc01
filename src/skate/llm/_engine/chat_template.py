"""Chat templates: the Jinja templates of models that turn messages into the text of a prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment, Template

DEFAULT = "default"
WITH_TOOLS = "tool_use"
END_MARK = "\ue000end of the final message\ue001"  # private-use characters, which no message should have


class ChatTemplate:
    """The chat templates of a model, by name. Most models have one.

    Templates run in Jinja's sandbox and see only plain JSON values. They are compiled when they are first used.

    Args:
        templates: The templates by name: "default", and optionally "tool_use" for requests with tools.
        variables: Variables of every rendering, such as `bos_token`.
    """

    def __init__(self, templates: Mapping[str, str], variables: Mapping[str, Any] | None = None) -> None:
        self._templates = dict(templates)
        self._variables = dict(variables or {})
        self._compiled: dict[str, Template] = {}  # by their sources

    def __bool__(self) -> bool:
        return bool(self._templates)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template: str | None = None,
        **variables: Any,
    ) -> str:
        """Return the text of a prompt; see `Tokenizer.apply_chat_template` for the arguments.

        Raises:
            ValueError: If there is no template, or it is invalid, or it rejects the messages.
        """
        from jinja2 import TemplateError

        if chat_template is None:
            template = self._select(bool(tools))
        else:
            template = self._compile(chat_template, "the given chat template")
        chat = _plain(messages)
        if not chat:
            raise ValueError("a chat needs at least one message")
        if continue_final_message:
            _mark_end(chat[-1])
        values = {
            **self._variables,
            **variables,
            "messages": chat,
            "tools": _plain(tools) if tools else None,
            "documents": _plain(variables.get("documents")),
            "add_generation_prompt": add_generation_prompt and not continue_final_message,
        }
        try:
            text = template.render(values)
        except TemplateError as error:
            raise ValueError(f"the chat template rejects the messages: {error}") from error
        except Exception as error:
            # A template can raise any error on messages that it does not expect.
            raise ValueError(
                f"the chat template failed on these messages: {type(error).__name__}: {error}"
            ) from error
        return _cut_at_end(text) if continue_final_message else text

    def _select(self, with_tools: bool) -> Template:
        if not self._templates:
            raise ValueError("the model has no chat template, so it does not take messages; send a prompt")
        name = WITH_TOOLS if with_tools and WITH_TOOLS in self._templates else DEFAULT
        if name not in self._templates:
            known = ", ".join(self._templates)
            raise ValueError(f"the model has no default chat template, only {known}")
        return self._compile(self._templates[name], "the model's chat template")

    def _compile(self, source: str, owner: str) -> Template:
        if source not in self._compiled:
            from jinja2 import TemplateSyntaxError

            try:
                self._compiled[source] = _environment().from_string(source)
            except TemplateSyntaxError as error:
                raise ValueError(f"{owner} is invalid: {error} (line {error.lineno})") from error
        return self._compiled[source]


def _environment() -> Environment:
    """Return a sandboxed environment with the functions and filters that chat templates use."""
    try:
        from jinja2 import TemplateError, nodes
        from jinja2.ext import Extension
        from jinja2.parser import Parser
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ImportError("chat templates need jinja2: pip install 'skate[llm]'") from error

    class Generation(Extension):
        """Accepts `{% generation %}` blocks, which mark the text that is trained."""

        tags = {"generation"}  # noqa: RUF012 - as in Jinja's base class

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment


def _plain(value: Any) -> Any:
    """Copy JSON values, so that a template cannot call methods of objects or change the caller's messages."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(each) for each in value]
    raise ValueError(f"messages and tools must be JSON values, got {type(value).__name__}: {value!r}")


def _mark_end(message: Any) -> None:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        message["content"] = content + END_MARK
        return
    parts = [part for part in content or () if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not parts:
        raise ValueError("continue_final_message needs a last message with text")
    parts[-1]["text"] += END_MARK


def _cut_at_end(text: str) -> str:
    before, mark, _ = text.rpartition(END_MARK)
    if not mark:
        raise ValueError("continue_final_message: the chat template omits the end of the last message")
    return before
