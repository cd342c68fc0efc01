"""Tokenizers in GGUF files: byte-level BPE, and BPE in SentencePiece's form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skate._base.suggestions import did_you_mean
from skate.llm._engine.gguf import GGUFFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CONTROL, USER_DEFINED = 3, 4  # types of tokens
SPACE = "▁"  # SentencePiece's replacement of a space

# How text is split before merging. Each expression is part of the published definition of a model.
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_CASED_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}"
_TEKKEN = rf"{_CASED % ('', '')}|\p{{N}}|{_CASED_REST}"
_GPT4O = rf"{_CASED % (_CONTRACTIONS + '?', _CONTRACTIONS + '?')}|\p{{N}}{{1,3}}|{_CASED_REST}"
_SPLITS = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("dbrx", "glm4", "chatglm-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"), _QWEN2),
    "tekken": _TEKKEN,
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _GPT4O),
}
_GPT2 = ("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "mellum", "granite-docling", "trillion")
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_IGNORE_MERGES = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "tekken", "llama4"}


def token_id(file: GGUFFile, kind: str) -> int | None:
    """Return the id of a special token: "bos", "eos", "eot", "eom", "unknown" or "padding".

    Raises:
        ValueError: If the file names a token that it does not have.
    """
    number = file.metadata.get(f"tokenizer.ggml.{kind}_token_id")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if number is None or not isinstance(tokens, list):
        return None
    if not isinstance(number, int) or not 0 <= number < len(tokens):
        raise ValueError(f"{file.path} has {len(tokens)} tokens, but its {kind} token is {number!r}")
    return number


def build_tokenizer(file: GGUFFile) -> Tokenizer:
    """Build the tokenizer that a GGUF file describes.

    Raises:
        ValueError: If the file has no tokenizer, or its kind is not supported.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("reading a tokenizer needs tokenizers: pip install 'skate[llm]'") from error
    values = {
        key.removeprefix("tokenizer.ggml."): value
        for key, value in file.metadata.items()
        if key.startswith("tokenizer.ggml.")
    }
    tokens, kind = values.get("tokens"), values.get("model")
    if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
        raise ValueError(f"{file.path} has no tokenizer")
    try:
        if kind == "gpt2":
            tokenizer = _byte_level(tokens, values)
        elif kind == "llama":
            tokenizer = _sentencepiece(tokens, values)
        else:
            raise ValueError(f"tokenizers of kind {kind!r} are not supported, only 'gpt2' and 'llama'")
        _add_special(tokenizer, tokens, values)
    except Exception as error:  # the tokenizers package raises plain Exception
        raise ValueError(f"{file.path}: {error}") from error
    assert isinstance(tokenizer, tokenizers.Tokenizer)
    return tokenizer


def _byte_level(tokens: list[str], values: Mapping[str, Any]) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = values.get("pre", "default")
    merges = [_split_merge(each) for each in values.get("merges", ())]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    for left, right in merges:  # otherwise the tokenizers package panics, which is not an Exception
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            raise ValueError(f"the merge of {left!r} and {right!r} needs tokens that are missing")
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=name in _IGNORE_MERGES))
    steps: list[Any]
    if name in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[name]), "isolated")
        steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif name in _GPT2 or name in _DIGITS:
        steps = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
        if name in _DIGITS:
            steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    else:
        known = (*_SPLITS, *_GPT2, *_DIGITS)
        raise ValueError(f"the pre-tokenizer {name!r} is not supported.{did_you_mean(name, known)}")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if _SPLITS.get(name) is _QWEN2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _split_merge(merge: str) -> tuple[str, str]:
    at = merge.index(" ", 1)  # in old files, the first part may be a space
    return merge[:at], merge[at + 1 :]


def _sentencepiece(tokens: list[str], values: Mapping[str, Any]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = values.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ValueError("a tokenizer of kind 'llama' needs a score for each token")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    unknown = values.get("unknown_token_id")
    tokenizer = Tokenizer(
        models.BPE(
            vocabulary,
            _merges(vocabulary, scores),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback="<0x00>" in vocabulary,
        )
    )
    prefix = values.get("add_space_prefix", True)
    steps: list[Any] = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    restore: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(restore + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    return tokenizer


def _merges(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Return the pairs of tokens that form a token, sorted by the score of that token."""
    found = []
    for token, number in vocabulary.items():
        for at in range(1, len(token)):
            left, right = token[:at], token[at:]
            if left in vocabulary and right in vocabulary:
                found.append((-scores[number], vocabulary[left], vocabulary[right], left, right))
    found.sort()
    return [(left, right) for *_, left, right in found]


def _add_special(tokenizer: Tokenizer, tokens: list[str], values: Mapping[str, Any]) -> None:
    from tokenizers import AddedToken, processors

    kinds = values.get("token_type", ())
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        found = [token for token, each in zip(tokens, kinds, strict=False) if each == kind and token]
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(token, special=special, normalized=False) for token in found])
    sentencepiece = values["model"] == "llama"
    llama3 = values.get("pre") in ("llama-bpe", "llama3", "llama-v3")
    parts, special_tokens = ["$A"], []
    begin, end = values.get("bos_token_id"), values.get("eos_token_id")
    if begin is not None and values.get("add_bos_token", sentencepiece or llama3):
        parts.insert(0, tokens[begin])
        special_tokens.append((tokens[begin], begin))
    if end is not None and values.get("add_eos_token", False):
        parts.append(tokens[end])
        special_tokens.append((tokens[end], end))
    if special_tokens:
        tokenizer.post_processor = processors.TemplateProcessing(single=parts, special_tokens=special_tokens)
