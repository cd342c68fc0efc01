from __future__ import annotations

from typing import Any

import pytest

from skate.llm._engine.chat_template import ChatTemplate

USER = [{"role": "user", "content": "Hi"}]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def template(text: str, **variables: Any) -> ChatTemplate:
    return ChatTemplate({"default": text}, variables)


def test_messages_become_text() -> None:
    chat = template(TEMPLATE, bos_token="<s>")
    assert chat.render(USER) == "<s><user>Hi</><assistant>"
    assert chat.render(USER, add_generation_prompt=False) == "<s><user>Hi</>"


def test_the_final_message_can_be_continued() -> None:
    chat = template(TEMPLATE)
    messages: list[dict[str, Any]] = [*USER, {"role": "assistant", "content": "I am "}]
    assert chat.render(messages, continue_final_message=True) == "<user>Hi</><assistant>I am "
    assert messages[-1]["content"] == "I am "
    parts = template("{% for m in messages %}{{ m.content[0].text }}</>{% endfor %}")
    content = [{"type": "text", "text": "So"}]
    assert parts.render([{"role": "assistant", "content": content}], continue_final_message=True) == "So"
    with pytest.raises(ValueError, match="last message with text"):
        chat.render([{"role": "assistant", "content": None}], continue_final_message=True)
    with pytest.raises(ValueError, match="omits"):
        template("nothing").render(USER, continue_final_message=True)


def test_another_template_than_the_models_can_be_given() -> None:
    chat = template(TEMPLATE, bos_token="<s>")
    assert chat.render(USER, chat_template="{{ bos_token }}{{ messages[0].content }}!") == "<s>Hi!"
    assert ChatTemplate({}).render(USER, chat_template="{{ messages[0].role }}") == "user"
    with pytest.raises(ValueError, match="the given chat template is invalid"):
        chat.render(USER, chat_template="{% if %}")


def test_the_functions_that_templates_use_are_there() -> None:
    chat = template(
        "{%- for m in messages -%}{%- if loop.index > 1 -%}{%- break -%}{%- endif -%}"
        "{%- generation -%}{{ m | tojson }}{%- endgeneration -%}{%- endfor -%}"
        "{{ strftime_now('%Y') | length }}{{ flag }}"
    )
    messages = [{"role": "user", "content": "日本<>"}] * 2
    assert chat.render(messages, flag=True) == '{"role": "user", "content": "日本<>"}4True'
    indented = template("{{ tools | tojson(indent=2) }}")
    assert indented.render(USER, tools=[{"a": 1}]) == '[\n  {\n    "a": 1\n  }\n]'


def test_blocks_leave_no_blank_lines() -> None:
    chat = template(
        "{% for m in messages %}\n    {% if true %}\n{{ m.content }}\n    {% endif %}\n{% endfor %}\n"
    )
    assert chat.render(USER) == "Hi\n"


def test_a_template_for_tools_is_used_with_tools() -> None:
    chat = ChatTemplate({"default": "plain", "tool_use": "{{ tools[0].name }}"})
    assert chat.render(USER) == "plain"
    assert chat.render(USER, tools=[{"name": "search"}]) == "search"
    with pytest.raises(ValueError, match="no default chat template, only rag"):
        ChatTemplate({"rag": "x"}).render(USER)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ raise_exception('roles must alternate') }}", "rejects the messages: roles must alternate"),
        ("{{ messages[0].content.x.y }}", "rejects the messages"),
        ("{{ messages[0].content + 1 }}", "failed on these messages: TypeError"),
        ("{% for m in messages %}", "is invalid: .*line 1"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_request(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        template(text).render(USER)


def test_messages_that_are_not_json_are_refused() -> None:
    with pytest.raises(ValueError, match="must be JSON values, got object"):
        template(TEMPLATE).render([{"role": "user", "content": object()}])
    with pytest.raises(ValueError, match="at least one message"):
        template(TEMPLATE).render([])
    with pytest.raises(ValueError, match="no chat template"):
        ChatTemplate({}).render(USER)
