"""Which tokens of a row are trained."""

from __future__ import annotations

from typing import Any

import pytest

from skate.llm._finetune.config import DatasetConfig
from skate.llm._finetune.masking import Encoded, Encoder
from skate.llm._finetune.rows import RowError, parse
from tests.llm.finetune.models import TEMPLATE, chat, make_tokenizer

LLAMA2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }} [/INST]"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
# As Qwen 3 does: earlier turns lose their reasoning once another question follows.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = TEMPLATE.replace("{{ m['content'] }}", "{% generation %}{{ m['content'] }}{% endgeneration %}")


def encode(row: dict[str, Any], tokenizer: Any, kind: str = "chat", **options: Any) -> list[Encoded]:
    return Encoder(tokenizer, **options).encode(parse(row, DatasetConfig(path="rows", type=kind)))


def trained(encoded: Encoded, tokenizer: Any) -> list[str]:
    """Return the trained parts as text."""
    parts: list[list[int]] = []
    before = False
    for id_, is_trained in zip(encoded.ids, encoded.mask, strict=True):
        if is_trained and not before:
            parts.append([])
        if is_trained:
            parts[-1].append(id_)
        before = is_trained
    return [tokenizer.decode(part) for part in parts]


TWO_TURNS = {
    "messages": [
        {"role": "system", "content": "four"},
        {"role": "user", "content": "say red"},
        {"role": "assistant", "content": "red"},
        {"role": "user", "content": "say blue"},
        {"role": "assistant", "content": "blue one"},
    ]
}


@pytest.mark.parametrize("template", [TEMPLATE, MARKED], ids=["plain", "with generation marks"])
def test_each_turn_of_the_assistant_is_trained_with_its_stop_token(template: str) -> None:
    tokenizer = make_tokenizer(template)
    (encoded,) = encode(TWO_TURNS, tokenizer)
    assert trained(encoded, tokenizer) == ["red<|im_end|>", "blue one<|im_end|>"]
    whole = tokenizer.apply_chat_template(TWO_TURNS["messages"], tokenize=False)
    assert tokenizer.decode(encoded.ids) == whole


def test_a_template_without_a_generation_prompt_is_masked() -> None:
    tokenizer = make_tokenizer(LLAMA2)
    (encoded,) = encode({"messages": TWO_TURNS["messages"][1:]}, tokenizer)
    assert trained(encoded, tokenizer) == [" red<|endoftext|>", " blue one<|endoftext|>"]


def test_a_template_that_renders_earlier_turns_differently_is_masked() -> None:
    tokenizer = make_tokenizer(FORGETFUL)
    (encoded,) = encode(TWO_TURNS, tokenizer)
    assert trained(encoded, tokenizer) == ["red<|im_end|>", "<think>\n\n</think>\n\nblue one<|im_end|>"]


def test_the_prompt_has_the_tokens_that_a_server_gives_the_model(tokenizer: Any) -> None:
    for answer in ("red", "\n\nred", " red", "é ü"):
        (encoded,) = encode(chat("say red", answer), tokenizer)
        prompt = tokenizer.apply_chat_template(
            chat("say red", answer)["messages"][:1], add_generation_prompt=True
        )["input_ids"]
        assert encoded.ids[: encoded.mask.index(True)] == prompt
        assert trained(encoded, tokenizer) == [f"{answer}<|im_end|>"]


def test_a_template_whose_turns_have_no_end_is_refused() -> None:
    tokenizer = make_tokenizer("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
    with pytest.raises(ValueError, match="never learn to stop"):
        encode(chat("say red", "red"), tokenizer)


def test_a_template_that_ignores_the_generation_prompt_is_refused() -> None:
    tokenizer = make_tokenizer(TEMPLATE.partition("{% if add_gen")[0])
    with pytest.raises(RowError, match="ignores add_generation_prompt"):
        encode(chat("say red", "red"), tokenizer)


def test_a_tokenizer_without_a_template_is_refused() -> None:
    with pytest.raises(ValueError, match="has no chat template: set chat_template"):
        encode(chat("say red", "red"), make_tokenizer(None))


def test_a_template_that_changes_the_answer_is_refused() -> None:
    tokenizer = make_tokenizer(
        FORGETFUL.replace("m['content'] }}", "m['content'] | replace('red', 'RED') }}")
    )
    with pytest.raises(RowError, match="changes the text"):
        encode(TWO_TURNS, tokenizer)


def test_an_instruction_is_a_chat_if_the_model_has_a_template(tokenizer: Any) -> None:
    row = {"instruction": "say", "input": "red", "output": "red"}
    (encoded,) = encode(row, tokenizer, "instruction")
    assert encoded == encode(chat("say\n\nred", "red"), tokenizer)[0]


def test_an_instruction_without_a_template_ends_with_the_eos_token() -> None:
    tokenizer = make_tokenizer(None)
    (encoded,) = encode({"instruction": "say", "output": "red"}, tokenizer, "instruction")
    assert trained(encoded, tokenizer) == ["red<|endoftext|>"]
    assert tokenizer.decode(encoded.ids).startswith("### Instruction:\nsay\n\n### Response:\nred")


def test_a_text_is_trained_as_a_whole_with_the_eos_token(tokenizer: Any) -> None:
    (encoded,) = encode({"text": "red one"}, tokenizer, "text")
    assert trained(encoded, tokenizer) == ["red one<|endoftext|>"]


def test_all_tokens_are_trained_if_asked_for(tokenizer: Any) -> None:
    (encoded,) = encode(chat("say red", "red"), tokenizer, train_on_inputs=True)
    assert all(encoded.mask)


def test_a_preference_has_two_sequences_with_the_same_prompt(tokenizer: Any) -> None:
    pair = encode({"prompt": "say", "chosen": "red", "rejected": "blue"}, tokenizer, "preference")
    assert [trained(each, tokenizer) for each in pair] == [["red<|im_end|>"], ["blue<|im_end|>"]]
    chats = [chat("say", "red")["messages"], chat("say", "blue")["messages"]]
    assert pair == encode({"chosen": chats[0], "rejected": chats[1]}, tokenizer, "preference")


@pytest.mark.parametrize(
    ("row", "kind", "reason"),
    [
        ({}, "chat", "the row has no `messages`"),
        ({"messages": []}, "chat", "not a list of messages"),
        ({"messages": "hello"}, "chat", "is a string"),
        ({"messages": [{"role": "user", "content": "x"}]}, "chat", "no assistant turn"),
        (chat("say", " "), "chat", "an assistant turn is empty"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "chat", "unknown role: 'robot'"),
        ({"messages": [{"role": "user"}]}, "chat", "a message has no text"),
        ({"instruction": "say"}, "instruction", "the row has no `output`"),
        ({"text": 5}, "text", "`text` is not a string: 5"),
        ({"text": ""}, "text", "`text` is empty"),
        ({"prompt": "a", "chosen": "b"}, "preference", "the row has no `rejected`"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "preference", "are the same"),
    ],
)
def test_a_row_that_cannot_be_trained_has_a_reason(row: dict[str, Any], kind: str, reason: str) -> None:
    with pytest.raises(RowError) as caught:
        parse(row, DatasetConfig(path="rows", type=kind))
    assert reason in str(caught.value)


def test_names_of_sharegpt_are_understood(tokenizer: Any) -> None:
    row = {"conversations": [{"from": "human", "value": "say"}, {"from": "gpt", "value": "red"}]}
    assert encode(row, tokenizer) == encode(chat("say", "red"), tokenizer)
