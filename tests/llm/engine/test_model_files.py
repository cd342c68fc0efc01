from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skate.llm import load_tokenizer
from skate.llm._engine.gguf import GGUFFile
from skate.llm._engine.model_files import open_model
from tests.llm.engine import gguf_files
from tests.llm.engine.gguf_files import gguf

torch: Any = pytest.importorskip("torch")
np: Any = pytest.importorskip("numpy")
transformers: Any = pytest.importorskip("transformers")
safetensors_torch: Any = pytest.importorskip("safetensors.torch")

# The first call opens a file for profilers, which stays open as long as the process lives.
torch.nn.functional.gelu(torch.zeros(64), approximate="tanh")

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def tiny(family: str, **options: Any) -> Any:
    """Return a small model with random weights, also in its norms."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 40} if family == "GPT2" else SIZES
    config_class = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    config = getattr(transformers, config_class)(**(sizes | options))
    model_class = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, model_class)._from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(torch.arange(1, 13)[None]).logits


def rebuild(path: Path, original: Any) -> Any:
    """Make a model of transformers from what `open_model` read."""
    files = open_model(path)
    model = type(original)._from_config(type(original.config)(**files.config))
    missing, unexpected = model.load_state_dict(dict(files.tensors()), strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()


# --- GGUF

ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "llama": ("Llama", "LLAMA", {}, {}),
    "llama with biases and tied embeddings": (
        "Llama",
        "LLAMA",
        {"attention_bias": True, "tie_word_embeddings": True},
        {},
    ),
    "llama 3 scaling": (
        "Llama",
        "LLAMA",
        {"rope_theta": 500000.0, "rope_scaling": dict(LLAMA3), "head_dim": 32},
        {"attention.key_length": 32, "attention.value_length": 32},
    ),
    "llama linear scaling": (
        "Llama",
        "LLAMA",
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "qwen2": ("Qwen2", "QWEN2", {}, {}),
    "qwen3": ("Qwen3", "QWEN3", {"head_dim": 8}, {"attention.key_length": 8, "attention.value_length": 8}),
    "gemma": ("Gemma", "GEMMA", {"head_dim": 8}, {"attention.key_length": 8, "attention.value_length": 8}),
    "gemma2": (
        "Gemma2",
        "GEMMA2",
        {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8},
        {
            "attention.key_length": 8,
            "attention.sliding_window": 4,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gemma3": (
        "Gemma3",
        "GEMMA3",
        {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8, "num_hidden_layers": 7},
        {"attention.key_length": 8, "attention.sliding_window": 4, "rope.freq_base": 1000000.0},
    ),
    "gpt2": ("GPT2", "GPT2", {"n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 64, "n_inner": 64}, {}),
}


def rotate(weight: Any, heads: int) -> Any:
    """Order rows of queries or keys as the original Llama has them, as llama.cpp's conversion does."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def convert(
    model: Any, path: Path, architecture: str, values: dict[str, Any], tokenizer: dict[str, Any] | None = None
) -> Path:
    """Write a model of transformers as GGUF, with the names of the gguf package."""
    config = model.config
    arch = gguf.MODEL_ARCH[architecture]
    name = gguf.MODEL_ARCH_NAMES[arch]
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    metadata = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": config.num_attention_heads,
    }
    if architecture == "GPT2":
        metadata |= {"feed_forward_length": 64, "attention.layer_norm_epsilon": 1e-5}
    else:
        metadata |= {
            "feed_forward_length": config.intermediate_size,
            "attention.head_count_kv": config.num_key_value_heads,
            "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
            "rope.freq_base": config.rope_parameters.get("rope_theta", 1.0),
        }
    tensors = {}
    for key, tensor in model.state_dict().items():
        array = tensor.numpy()
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if architecture == "LLAMA" and ".q_proj." in key:
            array = rotate(array, config.num_attention_heads)
        if architecture == "LLAMA" and ".k_proj." in key:
            array = rotate(array, config.num_key_value_heads)
        if architecture.startswith("GEMMA") and key.endswith("norm.weight"):
            array = array + 1
        if architecture == "GPT2" and ".c_" in key and key.endswith(".weight"):
            array = array.T
        tensors[names.get_name(key, try_suffixes=(".weight", ".bias"))] = np.ascontiguousarray(array)
    if (config.rope_parameters if architecture != "GPT2" else {}).get("rope_type") == "llama3":
        rotary = model.model.rotary_emb
        plain = 1 / (500000.0 ** (torch.arange(0, config.head_dim, 2) / config.head_dim))
        tensors["rope_freqs.weight"] = (plain / rotary.inv_freq).numpy()
    return gguf_files.write(
        path,
        name,
        {f"{name}.{key}": value for key, value in (metadata | values).items()} | (tokenizer or {}),
        tensors,
    )


@pytest.mark.parametrize("case", ARCHITECTURES)
def test_a_gguf_file_gives_the_logits_of_the_model_it_was_made_from(tmp_path: Path, case: str) -> None:
    family, architecture, options, values = ARCHITECTURES[case]
    model = tiny(family, **options)
    again = rebuild(convert(model, tmp_path / "model.gguf", architecture, values), model)
    want = model.state_dict()
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, want[name], rtol=0, atol=1e-6)
    torch.testing.assert_close(logits(again), logits(model), rtol=1e-4, atol=1e-4)


def test_the_configuration_of_a_gguf_file_has_the_keys_of_config_json(tmp_path: Path) -> None:
    model = tiny("Llama", rms_norm_eps=1e-5)
    values = {"attention.sliding_window": 32}
    path = convert(model, tmp_path / "model.gguf", "LLAMA", values)
    config = open_model(path).config
    expected = SIZES | {"head_dim": 4, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None}
    expected |= {"model_type": "mistral", "sliding_window": 32, "tie_word_embeddings": False}
    assert {key: config[key] for key in expected} == expected


def test_a_folder_with_one_gguf_file_is_a_model(tmp_path: Path) -> None:
    path = convert(tiny("Llama"), tmp_path / "tiny.gguf", "LLAMA", {})
    files = open_model(tmp_path)
    assert files.path == path
    assert files.name == "tiny"
    assert files.nbytes == path.stat().st_size
    path.with_name("b.gguf").write_bytes(path.read_bytes())
    with pytest.raises(ValueError, match=r"2 GGUF files.*b\.gguf, tiny\.gguf"):
        open_model(tmp_path)


MINIMAL_TENSORS = {
    "token_embd.weight": np.zeros((4, 4), np.float32),
    "blk.0.attn_norm.weight": np.zeros(4, np.float32),
}


def minimal(tmp_path: Path, architecture: str = "llama", **more: Any) -> Path:
    values = {
        f"{architecture}.{key}": value
        for key, value in {
            "block_count": 1,
            "context_length": 8,
            "embedding_length": 4,
            "feed_forward_length": 4,
            "attention.head_count": 1,
            "attention.layer_norm_rms_epsilon": 1e-6,
            **more.pop("values", {}),
        }.items()
        if value is not None
    }
    tensors = MINIMAL_TENSORS | more.pop("tensors", {})
    return gguf_files.write(tmp_path / "model.gguf", architecture, values | more, tensors)


def test_unsupported_gguf_models_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model\.gguf.*'mamba'.*llama, qwen2"):
        open_model(minimal(tmp_path, "mamba"))
    with pytest.raises(ValueError, match="mixture of experts"):
        open_model(minimal(tmp_path, values={"expert_count": 8}))
    with pytest.raises(ValueError, match=r"llama\.block_count must be a positive number, got None"):
        open_model(minimal(tmp_path, values={"block_count": None}))
    with pytest.raises(ValueError, match="should have 2147483648 layers"):
        open_model(minimal(tmp_path, "gemma3", values={"block_count": 2**31}))
    with pytest.raises(ValueError, match="layer_norm_rms_epsilon"):
        open_model(minimal(tmp_path, values={"attention.layer_norm_rms_epsilon": None}))
    with pytest.raises(ValueError, match="one part of a model"):
        open_model(minimal(tmp_path, **{"split.count": 3}))
    with pytest.raises(ValueError, match="rotary frequencies"):
        open_model(minimal(tmp_path, tensors={"rope_freqs.weight": np.array([3, 1], np.float32)}))
    with pytest.raises(ValueError, match=r"tensor 'blk\.0\.ssm_a\.weight'"):
        list(open_model(minimal(tmp_path, tensors={"blk.0.ssm_a.weight": np.zeros(4, np.float32)})).tensors())


def test_metadata_of_a_wrong_type_is_refused_by_name(tmp_path: Path) -> None:
    tokens: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b", "ab"],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.chat_template": "x",
    }
    values = {
        "attention.sliding_window": 4,
        "rope.freq_base": 1.0,
        "rope.scaling.factor": 2.0,
        "expert_count": 0,
    }
    path = minimal(tmp_path, "gemma3", values=values, **tokens)
    assert open_model(path).tokenizer.vocab_size == 3
    whole = {key: each for key, each in GGUFFile(path).metadata.items() if key != "general.architecture"}
    refused = 0
    for key in whole:
        for wrong in ("text", 0, 2**31, -1.5, [1, 2], ["a", "b"], [[1]]):
            path = gguf_files.write(tmp_path / "wrong.gguf", "gemma3", whole | {key: wrong}, MINIMAL_TENSORS)
            try:
                _ = open_model(path).tokenizer
            except ValueError as error:  # some of these values are fine
                assert "wrong.gguf" in str(error)  # noqa: PT017
                refused += 1
    assert refused > 50


def test_a_tokenizer_is_loaded_without_the_weights() -> None:
    tokenizer = load_tokenizer(gguf_files.smollm2())
    assert tokenizer.decode(tokenizer.encode("skate list actors")) == "skate list actors"
    assert tokenizer.has_chat_template


def test_smollm2_continues_a_sentence() -> None:
    files = open_model(gguf_files.smollm2())
    config = transformers.LlamaConfig(**files.config)
    with torch.device("meta"):  # drawing random weights would take longer than reading the real ones
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(dict(files.tensors()), strict=False, assign=True)
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    prompt = files.tokenizer.encode("The capital of France is")
    with torch.no_grad():
        best = int(model(torch.tensor([prompt])).logits[0, -1].argmax())
    assert files.tokenizer.decode([best]) == " Paris"


# --- folders


def save(model: Any, folder: Path, shards: int = 1) -> Path:
    """Write what `save_pretrained` writes, without importing the frameworks that it looks for."""
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    state = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    if shards == 1:
        safetensors_torch.save_file(state, folder / "model.safetensors")
        return folder
    names = list(state)
    places = {}
    for number in range(shards):
        part = {name: state[name] for name in names[number::shards]}
        safetensors_torch.save_file(part, folder / f"model-{number}.safetensors")
        places |= dict.fromkeys(part, f"model-{number}.safetensors")
    write_index(folder, places)
    return folder


def write_index(folder: Path, shards: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))


def test_a_folder_gives_configuration_and_weights(tmp_path: Path) -> None:
    model = tiny("Llama", rope_theta=5000.0, rope_scaling=dict(LLAMA3), eos_token_id=7)
    files = open_model(save(model, tmp_path / "my-model"))
    assert files.name == "my-model"
    assert files.config["rope_theta"] == 5000.0
    assert files.config["rope_scaling"]["rope_type"] == "llama3"
    assert files.config["num_key_value_heads"] == 2
    assert files.generation_config["eos_token_id"] == 7
    assert files.nbytes == (tmp_path / "my-model" / "model.safetensors").stat().st_size
    read = dict(files.tensors())
    for name, tensor in model.state_dict().items():
        assert torch.equal(read[name], tensor)


def test_shards_are_read_in_turn(tmp_path: Path) -> None:
    model = tiny("Llama")
    read = dict(open_model(save(model, tmp_path, shards=3)).tensors())
    assert read.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(read[name], tensor)


def test_old_configurations_are_completed(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "rope_theta": 1.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {
        "model.embed_tokens.weight": torch.zeros(4, 4),
        "model.layers.0.rotary_emb.inv_freq": torch.ones(2),
    }
    safetensors_torch.save_file(tensors, tmp_path / "model.safetensors")
    files = open_model(tmp_path)
    assert files.config == config | {
        "num_key_value_heads": 4,
        "head_dim": 4,
        "rope_scaling": None,
        "tie_word_embeddings": True,
    }
    assert [name for name, _ in files.tensors()] == ["model.embed_tokens.weight"]
    assert files.generation_config == {}


def test_two_rotary_bases_of_gemma_3_are_told_apart(tmp_path: Path) -> None:
    model = tiny("Gemma3", head_dim=8)
    config = open_model(save(model, tmp_path)).config
    assert (config["rope_theta"], config["rope_local_base_freq"]) == (1000000.0, 10000.0)


def test_gpt_2_of_the_hub_gets_the_common_names(tmp_path: Path) -> None:
    model = tiny("GPT2", n_embd=16, n_head=4, n_layer=1, n_positions=64)
    save(model, tmp_path)
    weights = safetensors_torch.load_file(tmp_path / "model.safetensors")
    short = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    short["h.0.attn.bias"] = torch.ones(1, 1, 64, 64)
    safetensors_torch.save_file(short, tmp_path / "model.safetensors")
    files = open_model(tmp_path)
    assert {name for name, _ in files.tensors()} == set(weights)
    assert files.config["hidden_size"] == 16
    assert files.config["num_hidden_layers"] == 1


def test_the_text_part_of_a_model_for_text_and_images_is_read(tmp_path: Path) -> None:
    config = {"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": {"model_type": "gemma3_text"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {"language_model.model.norm.weight": torch.ones(2), "vision_tower.x": torch.ones(2)}
    safetensors_torch.save_file(tensors, tmp_path / "model.safetensors")
    files = open_model(tmp_path)
    assert files.config["model_type"] == "gemma3_text"
    assert files.config["eos_token_id"] == [1, 106]
    assert [name for name, _ in files.tensors()] == ["model.norm.weight"]


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    safetensors_torch.save_file({"a": torch.zeros(64)}, tmp_path / "1.safetensors")
    safetensors_torch.save_file({"b": torch.zeros(64)}, tmp_path / "2.safetensors")
    write_index(tmp_path, {"a": "1.safetensors", "b": "2.safetensors"})
    return tmp_path


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "2.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"2\.safetensors does not exist"):
        open_model(sharded)


def test_a_half_written_shard_is_named(sharded: Path) -> None:
    path = sharded / "2.safetensors"
    for length in (0, 4, 40, path.stat().st_size - 1):
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(ValueError, match=r"2\.safetensors is corrupt"):
            open_model(sharded)


def test_an_index_that_does_not_fit_is_refused(sharded: Path) -> None:
    write_index(sharded, {"a": "1.safetensors", "c": "2.safetensors"})
    with pytest.raises(ValueError, match=r"2\.safetensors has no tensor 'c'"):
        open_model(sharded)
    write_index(sharded, {"a": "../1.safetensors"})
    with pytest.raises(ValueError, match="not in the folder of the index"):
        open_model(sharded)
    write_index(sharded, None)
    with pytest.raises(ValueError, match="weight_map"):
        open_model(sharded)


def test_a_folder_that_is_no_model_is_refused_by_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        open_model(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(FileNotFoundError, match="convert pytorch_model"):
        open_model(tmp_path)
    safetensors_torch.save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    for text, why in (("{", "not valid JSON"), ("[]", "JSON object")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=rf"config\.json .*{why}"):
            open_model(tmp_path)
    for text in ('{"hidden_size": "a", "num_attention_heads": 2}', '{"rope_parameters": 1}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ValueError, match=r"config\.json has a value of the wrong type"):
            open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": "a"}')
    with pytest.raises(ValueError, match=r"config\.json: eos_token_id must be a number"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text('{"quantization_config": {"quant_method": "gptq"}}')
    with pytest.raises(ValueError, match="'gptq'"):
        open_model(tmp_path)


def test_a_folder_without_tokenizer_loads_until_the_tokenizer_is_used(tmp_path: Path) -> None:
    files = open_model(save(tiny("Llama"), tmp_path))
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json"):
        _ = files.tokenizer


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_model(tmp_path / "nowhere")
    other = tmp_path / "model.txt"
    other.touch()
    with pytest.raises(ValueError, match=r"model\.txt is not a GGUF file"):
        open_model(other)


def test_a_model_in_the_cache_of_the_hub_is_found_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    commit = "0" * 40
    repository = tmp_path / "models--some--model"
    save(tiny("Llama"), repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert open_model("some/model").name == "some/model"
    with pytest.raises(FileNotFoundError, match=r"'some/other' is not a local folder, and"):
        open_model("some/other")
