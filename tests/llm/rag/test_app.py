"""The application over HTTP and by handle."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rag.app import NOTHING_FOUND, CrossEncoderReranker, build_app
from rag.ingest import ingest
from rag.store import Passage, Store

import skate
from skate import serve
from tests.conftest import LeakWatch
from tests.llm.rag.conftest import write_documents
from tests.llm.rag.engine import config

pytest.importorskip("faiss")

Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_documents(tmp_path_factory.mktemp("rag") / "documents")


@pytest.fixture(scope="module")
def url(leak_watch: LeakWatch, folder: Path, embeddings: str) -> Iterator[str]:
    with skate.init(engine="inline"):  # which starts no processes
        ingest(folder, folder.parent / "store", embeddings=embeddings)
    with leak_watch.shared_session(num_cpus=2):
        serve.start(http_options={"port": 0})
        serve.run(build_app(folder.parent / "store", config()))
        host, port = serve.address()
        yield f"http://{host}:{port}"
        serve.shutdown()


def post(url: str, body: bytes, kind: str = "application/json") -> tuple[int, bytes]:
    request = urllib.request.Request(f"{url}/ask", body, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.fixture
def ask(url: str) -> Ask:
    def ask(question: str) -> list[dict[str, Any]]:
        status, body = post(url, json.dumps({"question": question}).encode())
        assert status == 200, body
        return [json.loads(part.removeprefix("data: ")) for part in body.decode().split("\n\n") if part]

    return ask


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["text"] for event in events if event["type"] == "text")


def test_an_answer_cites_its_sources_with_file_heading_and_lines(ask: Ask) -> None:
    events = ask("say Large arrays are shared without copies [1]. The moon is cheese [9].")
    assert [event["type"] for event in (events[0], events[-1])] == ["sources", "end"]
    source = events[0]["sources"][0]
    assert (source["number"], source["name"], source["heading"]) == (1, "arrays.md", "Objects")
    assert (source["first_line"], source["last_line"]) == (3, 3)
    assert text_of(events) == "Large arrays are shared without copies [1]. The moon is cheese."
    assert events[-1]["cited"] == [1]
    assert {"embed", "search", "rerank", "first_token", "total"} == set(events[-1]["seconds"])


def test_the_model_sees_the_passages_and_the_question(ask: Ask) -> None:
    answer = text_of(ask("quote large arrays"))
    assert "Large arrays are shared without copies." in answer


def test_nothing_relevant_is_said_to_be_so_without_asking_the_model(ask: Ask) -> None:
    events = ask("say Who won the race in 1903?")
    assert events[0]["sources"] == []
    assert text_of(events) == NOTHING_FOUND
    assert events[-1]["cited"] == []


@pytest.mark.parametrize(
    "question", ['"arrays* AND (', "arrays'; DROP TABLE chunks --", "arrays \0 \u2028", "arrays 🙂"]
)
def test_operators_and_odd_characters_are_part_of_the_question(ask: Ask, question: str) -> None:
    events = ask(question)
    assert events[0]["sources"][0]["name"] == "arrays.md"
    assert events[-1]["type"] == "end"


def test_an_error_of_the_model_ends_the_stream_with_an_event(ask: Ask) -> None:
    assert ask("refuse arrays")[-1] == {
        "type": "error",
        "error": "The language model failed: refused: arrays",
    }
    crashed = ask("crash large arrays are")
    assert crashed[-1]["type"] == "error"
    assert ask("say arrays")[-1]["type"] == "end"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"question": 3}', 400),
        (b'{"question": " "}', 400),
        (b'{"question": "\\ud800"}', 400),
        (b"\xff", 400),
        (b"[" * 100_000, 400),
        (json.dumps({"question": "x" * 1001}).encode(), 400),
    ],
)
def test_a_bad_request_is_refused_with_a_reason(url: str, body: bytes, status: int) -> None:
    got, answer = post(url, body)
    assert got == status, answer
    assert json.loads(answer)["error"]


def test_a_form_of_another_site_is_refused(url: str) -> None:
    assert post(url, b'{"question": "arrays"}', "text/plain")[0] == 415


def test_the_page_allows_no_code_but_its_own(url: str) -> None:
    with urllib.request.urlopen(f"{url}/") as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    with pytest.raises(urllib.error.HTTPError) as failed:
        urllib.request.urlopen(f"{url}/../store")
    assert failed.value.code == 404
    failed.value.close()


def test_documents_that_are_ingested_while_it_serves_are_found(
    ask: Ask, url: str, folder: Path, embeddings: str
) -> None:
    assert text_of(ask("say banana")) == NOTHING_FOUND
    (folder / "new.md").write_text("# Fruit\n\nA banana.\n")
    ingest(folder, folder.parent / "store", embeddings=embeddings)
    assert ask("say banana")[0]["sources"][0]["name"] == "new.md"
    (folder / "new.md").unlink()
    ingest(folder, folder.parent / "store", embeddings=embeddings)
    assert text_of(ask("say banana")) == NOTHING_FOUND
    with urllib.request.urlopen(f"{url}/status") as answer:
        assert json.load(answer) == {"documents": 3, "chunks": 4, "model": "scripted"}


def test_the_retriever_has_no_torch_in_its_process(url: str) -> None:
    from skate.util.state import list_actors

    libraries = {
        actor.class_name: "libtorch" in Path(f"/proc/{actor.pid}/maps").read_text()
        for actor in list_actors(filters=[("state", "=", "ALIVE")])
        if actor.pid
    }
    found = {name: has for name, has in libraries.items() if "Retriever" in name or "Embedder" in name}
    assert sorted(found.values()) == [False, True], libraries


def test_a_store_without_documents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no store"):
        build_app(tmp_path / "missing", config())
    Store(tmp_path / "empty", model="m").close()
    with pytest.raises(ValueError, match="has no documents: ingest a folder first"):
        build_app(tmp_path / "empty", config())


def test_a_cross_encoder_can_rank(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "arrays": 2, "large": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]").save_pretrained(tmp_path)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertForSequenceClassification(BertConfig(vocab_size=4, num_labels=1, **shape)).save_pretrained(tmp_path)
    reranker = CrossEncoderReranker.func_or_class(str(tmp_path))
    passages = [
        Passage(number, "", "", "", 1, 1, text) for number, text in enumerate(["large arrays", "other"])
    ]
    ranked = reranker.rank("arrays", None, passages)
    assert [text for _, text in ranked] == ["large arrays", "other"]
    assert all(0 < score < 1 for score, _ in ranked)
    assert ranked[0][0] != ranked[1][0]
