from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skate.llm._engine.detokenizer import Detokenizer
from skate.llm._engine.tokenizer import TextTokenizer
from tests.llm.engine import tokenizers_for_tests
from tests.llm.engine.test_stop_strings import cut
from tests.llm.engine.tokenizers_for_tests import tokenizers


def load(text: str) -> TextTokenizer:
    return TextTokenizer(tokenizers.Tokenizer.from_str(text))


KINDS = {
    "byte-level": load(tokenizers_for_tests.byte_level_json()),
    "sentencepiece": load(tokenizers_for_tests.sentencepiece_json()),
}
CHARACTERS = "ab .\n\t'é€日本語한\u0301\u0308\u200d🤖👩🏽\U0001f1e9▁\ufffd\x00"
texts = st.one_of(st.text(CHARACTERS, max_size=30), st.text(max_size=20))
stop_lists = st.lists(st.text(CHARACTERS, min_size=1, max_size=4), max_size=3)


def stream(tokenizer: TextTokenizer, tokens: Sequence[int], **options: Any) -> tuple[str, str | None]:
    detokenizer = Detokenizer(tokenizer, **options)
    text = "".join(detokenizer.add(token) for token in tokens)
    return text + detokenizer.finish(), detokenizer.stop_string


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts, stops=stop_lists)
def test_streamed_text_is_the_decoded_text_up_to_the_first_stop_string(
    kind: str, text: str, stops: list[str]
) -> None:
    tokenizer = KINDS[kind]
    tokens = tokenizer.encode(text)
    assert stream(tokenizer, tokens, stop=stops) == cut(tokenizer.decode(tokens), stops)


@pytest.mark.parametrize("kind", KINDS)
@given(
    tokens=st.lists(st.integers(0, 520), max_size=30),
    stops=stop_lists,
    skip=st.booleans(),
)
def test_streamed_text_of_any_tokens_is_their_decoded_text(
    kind: str, tokens: list[int], stops: list[str], skip: bool
) -> None:
    tokenizer = KINDS[kind]
    whole = tokenizer.decode(tokens, skip_special_tokens=skip)
    assert stream(tokenizer, tokens, stop=stops, skip_special_tokens=skip) == cut(whole, stops)


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_appears_once_its_last_byte_is_there(kind: str) -> None:
    tokenizer = KINDS[kind]
    tokens = tokenizer.encode("🧩 a", add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.add(token) for token in tokens]
    assert "".join(pieces) + detokenizer.finish() == "🧩 a"
    assert pieces[:2] == ["", ""]
    assert "\ufffd" not in "".join(pieces)


def test_an_incomplete_character_ends_as_a_replacement_character() -> None:
    tokenizer = KINDS["byte-level"]
    tokens = tokenizer.encode("a🧩", add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer)
    assert "".join(detokenizer.add(token) for token in tokens[:-1]) == "a"
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_nothing_follows_a_stop_string() -> None:
    tokenizer = KINDS["byte-level"]
    detokenizer = Detokenizer(tokenizer, stop=["op"])
    pieces = [detokenizer.add(token) for token in tokenizer.encode("stop there")]
    assert "".join(pieces) + detokenizer.finish() == "st"
    assert detokenizer.stop_string == "op"


def test_a_space_between_prompt_and_output_is_kept() -> None:
    tokenizer = KINDS["sentencepiece"]
    tokens = tokenizer.encode("The quick brown fox")
    for at in range(1, len(tokens)):
        text, _ = stream(tokenizer, tokens[at:], prompt=tokens[:at])
        assert tokenizer.decode(tokens[:at]) + text == "The quick brown fox"
