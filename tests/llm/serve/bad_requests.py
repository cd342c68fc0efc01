"""Requests that must be answered with a 4xx status: a path, a body, and a part of the error's message."""

from __future__ import annotations

import json
from typing import Any

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
USER = {"role": "user", "content": "say hi"}
TOOL = {"type": "function", "function": {"name": "f"}}


def nested(depth: int) -> dict[str, Any]:
    """Return a schema of objects in objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [USER], **fields}


def schema(given: Any) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": given}})


def tools(**function: Any) -> dict[str, Any]:
    return chat(tools=[{"type": "function", "function": {"name": "f", **function}}])


def outputs(**fields: Any) -> dict[str, Any]:
    return chat(structured_outputs=fields)


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"temprature": 1}, "Did you mean 'temperature'"),
    ({"max_token": 1}, "Did you mean 'max_tokens'"),
    ({"topk": 1}, "Did you mean 'top_k'"),
    ({"stream_option": {}}, "Did you mean 'stream_options'"),
    ({"guided_json": {}}, "no field 'guided_json'"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "0.5"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": None, "top_p": 1.5}, "top_p"),
    ({"top_p": -1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 0.5}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"n": 0}, "`n`"),
    ({"n": 10**6}, "`n`"),
    ({"n": 129}, "`n`"),
    ({"n": "2"}, "`n`"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"max_tokens": 5000}, "2048 tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "different values"),
    ({"max_completion_tokens": 2048}, "2048 tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"presence_penalty": "high"}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"frequency_penalty": [1]}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"repetition_penalty": -1}, "repetition_penalty"),
    ({"repetition_penalty": 10**9}, "repetition_penalty"),
    ({"seed": 2**70}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["x"] * 17}, "at most 16"),
    ({"stop": ["x" * 2000]}, "at most 1024"),
    ({"stop": 5}, "stop"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 10**9}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"top_logprobs": 3}, "needs `logprobs`"),
    ({"logit_bias": {"100000": 1}}, "100000"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"hello": 1}}, "token ids"),
    ({"logit_bias": {"١": 1}}, "token ids"),
    ({"logit_bias": {"1": 101}}, "from -100 to 100"),
    ({"logit_bias": {"1": None}}, "logit_bias"),
    ({"logit_bias": [1, 2]}, "logit_bias"),
    ({"stop_token_ids": [99999]}, "99999"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "needs `stream`"),
    ({"stream": True, "stream_options": {"include_usage": 3}}, "include_usage"),
    ({"stream": True, "stream_options": {"include_usages": True}}, "Did you mean 'include_usage'"),
    ({"response_format": {"type": "yaml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "json_schema.schema"),
    ({"response_format": "json"}, "response_format"),
    ({"tool_choice": "required"}, "no `tools`"),
    ({"tool_choice": "sometimes", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [TOOL]}, "'g'"),
    ({"tools": [TOOL, TOOL]}, "two tools have the name"),
    ({"tools": [TOOL] * 200}, "tools"),
    ({"tools": [{"type": "retrieval"}]}, "tools"),
    ({"tools": "all"}, "tools"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"messages": []}}, "must not contain 'messages'"),
    ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "must not contain 'chat_template'"),
    ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "cannot both"),
    ({"priority": 2**80}, "priority"),
    ({"cache_salt": "x" * 300}, "cache_salt"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"model": 5}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user"}]}, "needs `content`"),
    ({"messages": [{"role": "user", "content": 5}]}, "content"),
    ({"messages": [{"role": "user", "content": "x", "contents": "y"}]}, "Did you mean 'content'"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "text only",
    ),
    ({"messages": [5]}, "messages"),
    ({"messages": [{"role": "user", "content": "long " * 1000}]}, "2048 tokens"),
    ({"messages": [{"role": "user", "content": "x" * 2_000_000}]}, "2000000 characters"),
    ({"messages": [{"role": "user", "content": "reject"}]}, "rejected the messages"),
]

BAD: list[tuple[str, Any, str]] = [
    *((CHAT, chat(**fields), text) for fields, text in FIELDS),
    # Grammars.
    (CHAT, schema({"type": "nonsense"}), "grammar"),
    (CHAT, schema({"type": "object", "properties": 5}), ""),
    (CHAT, schema({"$ref": "#/definitions/missing"}), ""),
    (CHAT, schema({"$ref": "http://example.org/schema"}), ""),
    (CHAT, schema({"type": "array", "uniqueItems": True}), ""),
    (CHAT, schema(nested(80)), "nested"),
    (CHAT, schema(nested(150)), "recursion"),
    (CHAT, schema({"enum": ["x" * 100] * 5000}), "limit"),
    (CHAT, schema([1]), "schema"),
    (CHAT, schema({"type": "string", "pattern": "(unclosed"}), ""),
    (CHAT, outputs(regex="(unclosed"), "grammar"),
    (CHAT, outputs(regex="a{1000000}{1000000}"), ""),
    (CHAT, outputs(regex="x" * 300_000), "regex"),
    (CHAT, outputs(grammar="not a grammar"), "grammar"),
    (CHAT, outputs(grammar="start: missing"), "grammar"),
    (CHAT, outputs(json="{broken"), "not valid JSON"),
    (CHAT, outputs(json="[" * 100_000), "not valid JSON"),
    (CHAT, outputs(choice=[]), "choice"),
    (CHAT, outputs(choice=["a"], regex="a"), "exactly one"),
    (CHAT, outputs(), "exactly one"),
    (CHAT, outputs(yaml="x"), "yaml"),
    (CHAT, {**outputs(choice=["a"]), "response_format": {"type": "json_object"}}, "cannot both"),
    (CHAT, {**outputs(choice=["a"]), "tools": [TOOL], "tool_choice": "required"}, "Send one of them"),
    (CHAT, tools(parameters={"type": "string"}), "schema of an object"),
    (CHAT, tools(parameters={"type": "object", "properties": {"a": {"type": "nonsense"}}}), "grammar"),
    (CHAT, tools(name="a b"), "name"),
    (CHAT, tools(name='"}{'), "name"),
    (CHAT, tools(name=""), "name"),
    (CHAT, tools(parameter={}), "Did you mean 'parameters'"),
    # Models.
    (CHAT, chat(model="other"), "does not exist"),
    (CHAT, chat(model="tiny:adapter"), "does not exist"),
    (CHAT, chat(model="tiny:../../etc"), "does not exist"),
    (CHAT, chat(model="x" * 10_000), "does not exist"),
    # Bodies.
    (CHAT, b"", "not valid JSON"),
    (CHAT, b"{", "not valid JSON"),
    (CHAT, b"[]", "must be a JSON object"),
    (CHAT, b"null", "must be a JSON object"),
    (CHAT, b'{"messages": NaN}', "not valid JSON"),
    (CHAT, b"\xff\xfe", "not valid JSON"),
    (CHAT, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "not valid JSON"),
    (CHAT, b'{"a":' * 1000 + b"1" + b"}" * 1000, ""),
    (CHAT, json.dumps(chat(metadata=nested(80))).encode(), "nested"),
    # Completions.
    (TEXT, {}, "`prompt` is missing"),
    (TEXT, {"prompt": []}, "empty"),
    (TEXT, {"prompt": [[]]}, "empty"),
    (TEXT, {"prompt": [1, "a"]}, "prompt"),
    (TEXT, {"prompt": [10**9]}, "1000000000"),
    (TEXT, {"prompt": [-1]}, "prompt"),
    (TEXT, {"prompt": "a" * 5000}, "2048 tokens"),
    (TEXT, {"prompt": ["a"] * 200}, "the limit of 128"),
    (TEXT, {"prompt": ["a"] * 100, "n": 2}, "the limit of 128"),
    (TEXT, {"prompt": "a", "logprobs": 21}, "logprobs"),
    (TEXT, {"prompt": "a", "best_of": 3}, "best_of"),
    (TEXT, {"prompt": "a", "suffix": "b"}, "suffix"),
    (TEXT, {"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
    (TEXT, {"prompt": "a", "messages": []}, "messages"),
    (TEXT, {"prompt": {"a": 1}}, "prompt"),
    # Other endpoints.
    (EMBED, {}, "`input` and `messages`"),
    (EMBED, {"input": []}, "empty"),
    (EMBED, {"input": [[]]}, "empty"),
    (EMBED, {"input": ["a"] * 3000}, "at most 2048"),
    (EMBED, {"input": [10**9]}, "1000000000"),
    (EMBED, {"input": "a", "encoding_format": "int8"}, "encoding_format"),
    (EMBED, {"input": "a" * 9000}, "2048 tokens"),
    ("/v1/score", {"text_1": "a"}, "`text_2` is missing"),
    ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, "as many"),
    ("/v1/rerank", {"query": "a", "documents": []}, "documents"),
    ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
    ("/tokenize", {}, "`prompt` is missing"),
    ("/tokenize", {"prompt": 5}, "prompt"),
    ("/detokenize", {"tokens": [10**9]}, "1000000000"),
    ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/v1/load_lora_adapter", {"lora_name": "a", "lora_path": "/nowhere"}, "base_model"),
    ("/v1/unload_lora_adapter", {"lora_name": "a"}, "does not exist"),
    ("/v1/nothing", {}, "no endpoint"),
]
