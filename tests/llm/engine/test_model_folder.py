"""Models of GGUF files as folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from skate.llm._engine.model_folder import convert_gguf
from tests.llm.engine import gguf_files
from tests.llm.engine.models import CHAT_TEMPLATE
from tests.llm.engine.test_model_files import convert, logits, tiny
from tests.llm.engine.tokenizers_for_tests import byte_level_json

MESSAGES = [{"role": "user", "content": "Naïve café 12"}]


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("Llama", vocab_size=401)


@pytest.fixture
def file(model: Any, tmp_path: Path) -> Path:
    tokenizer = gguf_files.tokenizer_metadata(byte_level_json(), "gpt2", pre="gpt-2", add_bos_token=True)
    tokenizer["tokenizer.chat_template"] = CHAT_TEMPLATE
    return convert(model, tmp_path / "small.gguf", "LLAMA", {}, tokenizer)


def test_transformers_loads_the_model_and_its_tokenizer(model: Any, file: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = convert_gguf(file, tmp_path / "cache")
    torch.testing.assert_close(
        logits(AutoModelForCausalLM.from_pretrained(folder)), logits(model), rtol=1e-4, atol=1e-4
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")


def test_a_file_is_converted_once_and_again_when_it_has_changed(file: Path, tmp_path: Path) -> None:
    folder = convert_gguf(file, tmp_path / "cache")
    (folder / "mark").touch()
    assert convert_gguf(file, tmp_path / "cache") == folder
    assert (folder / "mark").exists()
    os.utime(file, ns=(1, 1))
    assert convert_gguf(file, tmp_path / "cache") != folder


def test_a_corrupt_file_leaves_nothing_behind(file: Path, tmp_path: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=r"small\.gguf"):
        convert_gguf(file, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
