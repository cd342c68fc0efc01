"""Parsing, pickling and naming of requests."""

from __future__ import annotations

import os
import time

import pytest

from skate._api import payloads
from skate._api.payloads import pack_call, unpack
from skate.serve.llm._protocol.base import RawRequestInfo, RequestError, new_id, parse_body
from skate.serve.llm._protocol.chat import ChatCompletionRequest
from skate.serve.llm._protocol.completions import CompletionRequest

CHAT = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "metadata": {"a": [1]}}


def test_requests_are_packed_without_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(payloads, "serialize")
    info = RawRequestInfo({"host": "here"}, time.time())
    for request in (
        CompletionRequest.parse(
            {"prompt": [1, 2], "stream": True, "stream_options": {"include_usage": True}}
        ),
        ChatCompletionRequest.parse(CHAT),
    ):
        (found, found_info), _ = unpack(pack_call((request, info), {}) or b"")
        assert found == request
        assert found.model_fields_set == request.model_fields_set
        assert found_info == info


@pytest.mark.parametrize("depth", [127, 128])
def test_a_body_may_have_128_levels(depth: int) -> None:
    body = b'{"metadata":' * depth + b"1" + b"}" * depth
    assert parse_body(body)
    wide = b'{"a":[%s],"metadata":%s}' % (b",".join([b"{}"] * 200), body)
    if depth == 127:
        assert parse_body(wide)
        return
    with pytest.raises(RequestError, match="nested more than 128 levels"):
        parse_body(wide)


def test_ids_differ_also_between_a_process_and_its_child() -> None:
    ids = {new_id("cmpl-") for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) == len("cmpl-") + 32 for each in ids)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, new_id("cmpl-").encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        assert pipe.read().decode() != new_id("cmpl-")
