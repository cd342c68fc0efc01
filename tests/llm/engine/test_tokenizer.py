from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from skate.llm._engine.api import Tokenizer
from skate.llm._engine.gguf import GGUFFile
from skate.llm._engine.model_files import open_model
from skate.llm._engine.tokenizer import TextTokenizer
from tests.llm.engine import gguf_files
from tests.llm.engine.tokenizers_for_tests import SENTENCES, byte_level_json, sentencepiece_json

transformers: Any = pytest.importorskip("transformers")

TEMPLATE = """{{ bos_token }}
{%- if tools %}
{{ '<|im_start|>tools\\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '<|im_end|>' }}
{%- endif %}
{%- for message in messages %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{%- endif %}"""
TEXTS = [*SENTENCES[:5], "", " ", "  two  spaces ", "<|im_start|>user\nHi<|im_end|>", "Z̧͔̾ zalgo \x00 \t"]
CHATS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Wie spät?"}],
    [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": " 2 "},
        {"role": "user", "content": "日本語 🤖"},
    ],
]
TOOLS = [{"type": "function", "function": {"name": "météo", "parameters": {"type": "object"}}}]


def write(folder: Path, text: str, **config: Any) -> Path:
    (folder / "tokenizer.json").write_text(text)
    special = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(special | settings | config))
    return folder


@pytest.fixture(params=["byte-level", "sentencepiece"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path, byte_level_json() if request.param == "byte-level" else sentencepiece_json())


def test_text_and_tokens_are_those_of_transformers(folder: Path) -> None:
    ours, theirs = TextTokenizer.from_folder(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.vocab_size == len(theirs)
    assert ours.bos_token_id == theirs.bos_token_id
    assert ours.eos_token_ids == (theirs.eos_token_id,)
    for text in TEXTS:
        for special in (True, False):
            tokens = ours.encode(text, add_special_tokens=special)
            assert tokens == theirs.encode(text, add_special_tokens=special)
            for skip in (True, False):
                assert ours.decode(tokens, skip_special_tokens=skip) == theirs.decode(
                    tokens, skip_special_tokens=skip
                )


def test_chats_are_rendered_as_by_transformers(folder: Path) -> None:
    ours, theirs = TextTokenizer.from_folder(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert ours.has_chat_template
    for chat in CHATS:
        for tools in (None, TOOLS):
            for more in (True, False):
                options: dict[str, Any] = {"tools": tools, "add_generation_prompt": more}
                text = ours.apply_chat_template(chat, **options)
                assert text == theirs.apply_chat_template(chat, tokenize=False, **options)
                tokens = theirs.apply_chat_template(chat, tokenize=True, return_dict=False, **options)
                assert ours.encode(text, add_special_tokens=False) == tokens
        continued = theirs.apply_chat_template(chat, tokenize=False, continue_final_message=True)
        assert ours.apply_chat_template(chat, continue_final_message=True).rstrip() == continued.rstrip()


def test_a_text_that_starts_with_bos_gets_no_second_one(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.from_folder(write(tmp_path, byte_level_json()))
    text = tokenizer.apply_chat_template(CHATS[0])
    tokens = tokenizer.encode(text)
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    assert tokens.count(tokenizer.bos_token_id or 0) == 1
    assert tokenizer.encode("<s>") == [tokenizer.bos_token_id]


def test_each_token_is_written_with_its_space_and_bytes(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.from_folder(write(tmp_path, byte_level_json()))
    for text in TEXTS[:5]:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(map(tokenizer.token_bytes, tokens)).decode() == text
    parts = tokenizer.encode("🧩", add_special_tokens=False)
    assert all(tokenizer.token_text(token).startswith(r"bytes:\x") for token in parts)
    assert tokenizer.token_text(tokenizer.eos_token_ids[0]) == "</s>"
    assert tokenizer.token_text(10**6) == ""
    added = tokenizer.encode("<tool call>", add_special_tokens=False)
    assert [tokenizer.token_text(token) for token in added] == ["<tool call>"]


def test_tokens_of_sentencepiece_are_written_with_their_space(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.from_folder(write(tmp_path, sentencepiece_json()))
    tokens = tokenizer.encode("The quick 🧩")
    assert b"".join(map(tokenizer.token_bytes, tokens)).decode() == " The quick 🧩"


def test_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.from_folder(write(tmp_path, byte_level_json()))
    with pytest.raises(ValueError, match="not valid Unicode"):
        tokenizer.encode("a\ud800")


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    value = json.loads(byte_level_json())
    value["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    tokenizer = TextTokenizer.from_folder(write(tmp_path, json.dumps(value)))
    assert tokenizer.decode(tokenizer.encode(TEXTS[0])) == TEXTS[0]


def test_end_tokens_of_all_files_are_joined(tmp_path: Path) -> None:
    write(tmp_path, byte_level_json())
    tokenizer = TextTokenizer.from_folder(tmp_path, eos_token_ids=[3, 0])
    assert tokenizer.eos_token_ids == (0, 1, 3)


def test_chat_templates_come_from_files_of_their_own_first(tmp_path: Path) -> None:
    write(tmp_path, byte_level_json())
    (tmp_path / "chat_template.jinja").write_text("from a file")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools")
    tokenizer = TextTokenizer.from_folder(tmp_path)
    assert tokenizer.apply_chat_template(CHATS[0]) == "from a file"
    assert tokenizer.apply_chat_template(CHATS[0], tools=TOOLS) == "tools"


def test_chat_templates_may_be_a_list(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    tokenizer = TextTokenizer.from_folder(write(tmp_path, byte_level_json(), chat_template=templates))
    assert tokenizer.apply_chat_template(CHATS[0], tools=TOOLS) == "b"
    with pytest.raises(ValueError, match=r"tokenizer_config\.json: chat_template is malformed"):
        TextTokenizer.from_folder(write(tmp_path, byte_level_json(), chat_template=[{"name": "x"}]))


def test_a_tokenizer_without_settings_has_no_special_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(byte_level_json())
    tokenizer: Tokenizer = TextTokenizer.from_folder(tmp_path)
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == ()
    assert not tokenizer.has_chat_template
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": {"content": "</s>", "lstrip": false}}')
    assert TextTokenizer.from_folder(tmp_path).eos_token_ids == (1,)


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json does not exist"):
        TextTokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text(byte_level_json()[:-100])
    with pytest.raises(ValueError, match=r"tokenizer\.json is corrupt"):
        TextTokenizer.from_folder(tmp_path)
    write(tmp_path, byte_level_json())
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not valid JSON"):
        TextTokenizer.from_folder(tmp_path)


# --- GGUF


def gguf_tokenizer(tmp_path: Path, values: dict[str, Any]) -> TextTokenizer:
    return TextTokenizer.from_gguf(GGUFFile(gguf_files.write(tmp_path / "t.gguf", "llama", values, {})))


def test_a_byte_level_tokenizer_of_a_gguf_file_is_the_original(tmp_path: Path) -> None:
    values = gguf_files.tokenizer_metadata(
        byte_level_json(), "gpt2", pre="gpt-2", add_bos_token=True, eot_token_id=3
    )
    values["tokenizer.chat_template"] = TEMPLATE
    tokenizer = gguf_tokenizer(tmp_path, values)
    original = TextTokenizer.from_folder(write(tmp_path, byte_level_json()))
    for text in TEXTS:
        assert tokenizer.encode(text) == original.encode(text)
        assert tokenizer.decode(tokenizer.encode(text)) == original.decode(original.encode(text))
    assert tokenizer.apply_chat_template(CHATS[2]) == original.apply_chat_template(CHATS[2])
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (0, (1, 3))


def test_a_sentencepiece_tokenizer_of_a_gguf_file_is_the_original(tmp_path: Path) -> None:
    tokenizer = gguf_tokenizer(tmp_path, gguf_files.tokenizer_metadata(sentencepiece_json(), "llama"))
    original = TextTokenizer.from_folder(write(tmp_path, sentencepiece_json()))
    for text in TEXTS[:5]:
        assert tokenizer.encode(text) == [0, *original.encode(text)]  # BOS unless the file says otherwise
        assert tokenizer.decode(tokenizer.encode(text)) == original.decode(original.encode(text))


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "a12345 It's", ["a", "12345", "ĠIt", "'s"]),
        ("smollm", "a12345 It's", ["a", "1", "2", "3", "4", "5", "ĠIt", "'s"]),
        ("llama-bpe", "a12345 IT'S", ["a", "123", "45", "ĠIT", "'S"]),
        ("qwen2", "a123 x\n\ny", ["a", "1", "2", "3", "Ġx", "ĊĊ", "y"]),
        ("tekken", "aB12 x", ["a", "B", "1", "2", "Ġx"]),
        ("gpt-4o", "aB123 it's", ["a", "B", "123", "Ġit's"]),
    ],
)
def test_each_pre_tokenizer_splits_as_its_model_does(
    tmp_path: Path, pre: str, text: str, pieces: list[str]
) -> None:
    tokenizer = gguf_tokenizer(tmp_path, gguf_files.tokenizer_metadata(byte_level_json(), "gpt2", pre=pre))
    assert [piece for piece, _ in tokenizer.backend.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_tokenizers_that_cannot_be_built_are_refused(tmp_path: Path) -> None:
    values = gguf_files.tokenizer_metadata(byte_level_json(), "gpt2")
    for change, why in (
        ({"model": "bert"}, "kind 'bert'"),
        ({"pre": "smolm"}, "Did you mean 'smollm'"),
        ({"merges": ["no"]}, r"t\.gguf"),
        ({"merges": ["un known"]}, r"t\.gguf"),
        ({"eos_token_id": 10**6}, "its eos token is 1000000"),
        ({"model": "llama"}, "score for each token"),
    ):
        changed = values | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
        with pytest.raises(ValueError, match=why):
            gguf_tokenizer(tmp_path, changed)
    with pytest.raises(ValueError, match=r"t\.gguf has no tokenizer"):
        gguf_tokenizer(tmp_path, {})


@cache
def smollm2() -> TextTokenizer:
    return open_model(gguf_files.smollm2()).tokenizer


def test_smollm2_has_the_tokens_of_its_model() -> None:
    tokenizer = smollm2()
    # As llama.cpp gives them for this file.
    assert tokenizer.encode("Hello, world! 2024") == [19556, 28, 905, 17, 216, 34, 32, 34, 36]
    assert tokenizer.eos_token_ids == (2,)
    assert tokenizer.vocab_size == 49152
    for text in TEXTS:
        if "<|" not in text:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_smollm2_renders_its_chat_template() -> None:
    tokenizer = smollm2()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    tokens = tokenizer.encode(text)
    assert tokens == tokenizer.encode(text, add_special_tokens=False)
    assert tokens[0] == tokenizer.bos_token_id == 1
    assert tokenizer.decode(tokens, skip_special_tokens=False) == text
