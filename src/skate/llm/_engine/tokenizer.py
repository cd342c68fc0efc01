"""The tokenizer of a model: text to tokens and back, and messages to the text of a prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skate.llm._engine.chat_template import DEFAULT, ChatTemplate
from skate.llm._engine.gguf import GGUFFile
from skate.llm._engine.gguf_tokenizer import SPACE, build_tokenizer, token_id
from skate.llm._engine.json_files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # how SentencePiece writes a token of one byte


class TextTokenizer:
    """Converts text to tokens and back. Implements `skate.llm._engine.api.Tokenizer`.

    Text is tokenized in one place only, so that no prompt gets two BOS tokens.

    Args:
        tokenizer: The tokenizer of the `tokenizers` package. Its truncation and padding are disabled.
        special_tokens: The texts of special tokens by name, such as `{"bos_token": "<s>"}`.
        chat_templates: The model's chat templates by name.
        eos_token_ids: Tokens that end a text, in addition to `special_tokens["eos_token"]`.

    Attributes:
        vocab_size: The number of tokens. Every token is smaller than this.
        eos_token_ids: All tokens that end a text.
        bos_token_id: The token that starts a text, if there is one.
        has_chat_template: Whether `apply_chat_template` can be used.
        backend: The tokenizer of the `tokenizers` package.
        special_tokens: The texts of special tokens by name.
        special_token_ids: The tokens that `decode` leaves out by default.
        chat_templates: The model's chat templates by name.
        byte_level: Whether each token represents fixed bytes, regardless of the tokens before it.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        chat_templates: Mapping[str, str] | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special = dict(special_tokens or {})
        added = tokenizer.get_added_tokens_decoder()
        self.backend = tokenizer
        self.vocab_size = max(tokenizer.get_vocab_size(), *(number + 1 for number in added), 0)
        self.bos_token_id = self._id_of(special.get("bos_token"))
        eos = (*eos_token_ids, self._id_of(special.get("eos_token")))
        self.eos_token_ids = tuple(sorted({each for each in eos if each is not None}))
        self.special_token_ids = frozenset(number for number, token in added.items() if token.special)
        self.special_tokens: Mapping[str, str] = special
        self.chat_templates: Mapping[str, str] = dict(chat_templates or {})
        self._chat_template = ChatTemplate(self.chat_templates, special)
        self.has_chat_template = bool(self._chat_template)
        self._bytes: dict[int, bytes] = {}  # of requested tokens
        decoder = tokenizer.decoder
        self.byte_level = decoder is not None and json.loads(decoder.__getstate__())["type"] == "ByteLevel"

    @classmethod
    def from_folder(cls, folder: Path, *, eos_token_ids: Iterable[int] = ()) -> TextTokenizer:
        """Read tokenizer.json, and the special tokens and chat templates in the same folder.

        Raises:
            FileNotFoundError: If there is no tokenizer.json.
            ValueError: If a file is corrupt.
        """
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ImportError("reading a tokenizer needs tokenizers: pip install 'skate[llm]'") from error
        path = folder / "tokenizer.json"
        if not path.exists():
            raise FileNotFoundError(
                f"{path} does not exist; create it with"
                " transformers.AutoTokenizer.from_pretrained(…).save_pretrained(…)"
            )
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the tokenizers package raises plain Exception
            raise ValueError(f"{path} is corrupt: {error}") from error
        config: dict[str, Any] = {}
        for name in ("special_tokens_map.json", "tokenizer_config.json"):
            if (folder / name).exists():
                config |= read_json(folder / name)
        texts = {name: _content(config.get(name)) for name in SPECIAL}
        return cls(
            tokenizer,
            special_tokens={name: text for name, text in texts.items() if text is not None},
            chat_templates=_folder_templates(folder, config),
            eos_token_ids=eos_token_ids,
        )

    @classmethod
    def from_gguf(cls, file: GGUFFile) -> TextTokenizer:
        """Build the tokenizer that a GGUF file describes.

        Raises:
            ValueError: If the file has no tokenizer, or its kind is not supported.
        """
        tokenizer = build_tokenizer(file)
        metadata = file.metadata
        tokens = metadata["tokenizer.ggml.tokens"]
        special = {}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            number = token_id(file, key)
            if number is not None:
                special[f"{name}_token"] = tokens[number]
        sources = {DEFAULT: metadata.get("tokenizer.chat_template")}
        extra = metadata.get("tokenizer.chat_templates")
        for name in extra if isinstance(extra, list) else ():
            sources[str(name)] = metadata.get(f"tokenizer.chat_template.{name}")
        return cls(
            tokenizer,
            special_tokens=special,
            chat_templates={name: text for name, text in sources.items() if isinstance(text, str)},
            eos_token_ids=[each for kind in ("eot", "eom") if (each := token_id(file, kind)) is not None],
        )

    def _id_of(self, text: str | None) -> int | None:
        return None if text is None else self.backend.token_to_id(text)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the tokens of a text. A text that starts with BOS, as many chat templates do, gets no second BOS.

        Raises:
            ValueError: If the text contains an unpaired surrogate.
        """
        try:
            tokens = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        except (TypeError, UnicodeEncodeError) as error:
            if not isinstance(text, str):
                raise
            raise ValueError(f"the text is not valid Unicode: {error}") from error
        if add_special_tokens and len(tokens) > 1 and tokens[0] == tokens[1] == self.bos_token_id:
            del tokens[0]
        return tokens

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens. Numbers that are not tokens are ignored."""
        return self.backend.decode(list(tokens), skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of one token, with a space if it begins a word. They are empty if it is not a token."""
        data = self._bytes.get(token)
        if data is None:
            data = self._bytes[token] = self._find_bytes(token)
        return data

    def _find_bytes(self, token: int) -> bytes:
        text = self.backend.id_to_token(token)
        if text is None:
            return b""
        if self.byte_level:
            try:
                return bytes(_BYTES[each] for each in text)
            except KeyError:  # an added token, which is plain text
                return text.encode()
        byte = _BYTE.fullmatch(text)
        return bytes([int(byte[1], 16)]) if byte else text.replace(SPACE, " ").encode()

    def is_single_byte(self, token: int) -> bool:
        """Return whether a token of a SentencePiece model represents a single byte of a character."""
        if self.byte_level:
            return False
        text = self.backend.id_to_token(token)
        return text is not None and _BYTE.fullmatch(text) is not None

    def token_text(self, token: int) -> str:
        r"""Return the text of one token. A token that is part of a character is shown as `bytes:\xf0\x9f`."""
        data = self.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{each:02x}" for each in data)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Render messages to the text of a prompt; see `Tokenizer.apply_chat_template` for the options.

        Raises:
            ValueError: If there is no chat template, or it is invalid, or it rejects the messages.
        """
        return self._chat_template.render(messages, **options)


def _content(token: Any) -> str | None:
    """Return the text of a special token, which is stored as a string or as an object."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None


def _folder_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the chat templates of a folder. Separate files take precedence over tokenizer_config.json."""
    single = folder / "chat_template.jinja"
    extra = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    templates = {path.stem: path.read_text(encoding="utf-8") for path in extra}
    if single.exists():
        templates[DEFAULT] = single.read_text(encoding="utf-8")
    if templates:
        return templates
    given = config.get("chat_template")
    if isinstance(given, str):
        return {DEFAULT: given}
    try:
        return {each["name"]: each["template"] for each in given or ()}
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"{folder / 'tokenizer_config.json'}: chat_template is malformed: {error}"
        ) from error


def _byte_alphabet() -> dict[str, int]:
    """Return the byte that each character of a byte-level BPE token represents. Printable bytes are unchanged."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES = _byte_alphabet()
