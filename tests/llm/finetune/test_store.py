"""Prepared data: what is read, what is left out, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import skate.data
from skate.llm import FinetuneConfig
from skate.llm._finetune.masking import Encoder
from skate.llm._finetune.store import DEAD_LETTERS, Prepared, open_prepared, prepare
from tests.llm.finetune.models import chat, chats, write_rows

Make = Callable[..., FinetuneConfig]


@pytest.fixture
def prepared(config: Make, tokenizer: Any, tmp_path: Path) -> Callable[..., Prepared]:
    return lambda *rows, **keys: prepare(config(*rows, **keys), Encoder(tokenizer), tmp_path / "prepared")


def test_broken_and_long_rows_are_counted_with_their_reasons(
    prepared: Callable[..., Prepared], tmp_path: Path
) -> None:
    rows = [*chats(3), "{broken", "[1]", chat("say", ""), chat("say", "red " * 80)]
    found = prepared(rows)
    assert found.summary["rows_read"] == 7
    assert found.summary["dead_letters"] == {
        "the line is not JSON": 1,
        "the line is not a JSON object": 1,
        "an assistant turn is empty": 1,
        "longer than sequence_len": 1,
    }
    letters = [json.loads(line) for line in (tmp_path / "prepared" / DEAD_LETTERS).read_text().splitlines()]
    assert letters[0]["row"] == "{broken"
    assert "sequence_len is 64" in letters[-1]["detail"]
    assert found.lengths().max() <= 64
    assert (found.trained() > 0).all()


def test_data_without_a_usable_row_is_refused_with_the_reasons(prepared: Callable[..., Prepared]) -> None:
    with pytest.raises(ValueError, match=r"none of 2 rows can be trained on: .*not JSON \(2\)"):
        prepared(["{", "{"])


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet", "dataset"])
def test_formats_have_the_same_rows(prepared: Callable[..., Prepared], tmp_path: Path, kind: str) -> None:
    rows = chats(5)
    source: Any = str(tmp_path / f"data.{kind}")
    if kind == "jsonl":
        write_rows(Path(source), rows)
    elif kind == "json":
        Path(source).write_text(json.dumps(rows))
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), source)
    else:
        source = skate.data.from_items(rows)
    found = prepared(rows, datasets=[source])
    expected = prepared(rows)
    assert found.tokens.tolist() == expected.tokens.tolist()
    assert found.mask.tolist() == expected.mask.tolist()


def test_csv_and_text_files_are_read(prepared: Callable[..., Prepared], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("instruction,output\nsay red,red\nsay blue,blue\n")
    (tmp_path / "rows.txt").write_text("red one\nblue two\n")
    found = prepared(
        datasets=[
            {"path": str(tmp_path / "rows.csv"), "type": "instruction"},
            {"path": str(tmp_path / "rows.txt"), "type": "text"},
        ]
    )
    assert found.summary["rows"] == 4


@pytest.mark.parametrize(
    ("split", "rows"), [("train", 10), ("train[:3]", 3), ("train[20%:50%]", 3), ("train[8:]", 2)]
)
def test_a_split_selects_rows(prepared: Callable[..., Prepared], split: str, rows: int, config: Make) -> None:
    (source,) = config(chats(10)).datasets
    found = prepared(datasets=[{"path": source.path, "split": split}])
    assert found.summary["rows"] == rows


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"path": "nowhere.jsonl"}, "there is no file"),
        ({"path": "{folder}", "split": "train["}, "split is"),
        ({"path": "{folder}", "split": "train[50:]"}, "selects none of 4 rows"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(
    prepared: Callable[..., Prepared], tmp_path: Path, source: dict[str, str], said: str
) -> None:
    (tmp_path / "data").mkdir()
    write_rows(tmp_path / "data" / "rows.jsonl", chats(4))
    given = {key: value.format(folder=tmp_path / "data") for key, value in source.items()}
    with pytest.raises(ValueError, match="datasets") as caught:
        prepared(datasets=[given])
    assert said in str(caught.value)


def test_rows_for_evaluation_are_not_trained_on(prepared: Callable[..., Prepared]) -> None:
    found = prepared(chats(20), val_set_size=0.25)
    assert (len(found.train), len(found.evaluation)) == (15, 5)
    assert not set(found.train) & set(found.evaluation)
    with pytest.raises(ValueError, match="takes all 20 rows"):
        prepared(chats(20), val_set_size=20)


def test_a_resumed_run_reuses_what_was_prepared(config: Make, tokenizer: Any, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    first = prepare(config(chats(4)), Encoder(tokenizer), folder)
    again = prepare(config(chats(5)), Encoder(tokenizer), folder, reuse=True)
    assert again.summary == first.summary == open_prepared(folder).summary
    other = prepare(config(sequence_len=50), Encoder(tokenizer), folder, reuse=True)
    assert other.summary["rows"] == 5
