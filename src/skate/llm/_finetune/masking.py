"""Encode rows as token ids, with a mask of the tokens that are trained.

Only the turns of the assistant are trained, up to and including the token that ends a turn. The templates of most
models do not mark the turns, so they are found by rendering: turn `i` is the text that the rendering of
`messages[:i + 1]` adds to the generation prompt of `messages[:i]`. Each turn is checked against the rendering of the
whole conversation. If they do not match, the row is rejected with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from skate.llm._finetune.rows import Chat, Instruction, Preference, Row, RowError, Text

_PROBE = "\ue000answer\ue001"  # private-use characters, which no text should contain
Span = tuple[int, int]


@dataclass(frozen=True)
class Encoded:
    """Token ids, and for each token whether it is trained."""

    ids: list[int]
    mask: list[bool]

    @property
    def trained(self) -> int:
        """The number of trained tokens. The first token is not counted, because nothing predicts it."""
        return sum(self.mask[1:])


class Encoder:
    """Turns rows into tokens with the tokenizer and the chat template of a model.

    Args:
        tokenizer: A fast tokenizer of transformers.
        train_on_inputs: Whether to train on all tokens of a conversation.
    """

    def __init__(self, tokenizer: Any, *, train_on_inputs: bool = False) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                "the tokenizer must be a fast tokenizer, which maps tokens to characters: convert it to tokenizer.json "
                "with transformers."
            )
        self.tokenizer = tokenizer
        self.train_on_inputs = train_on_inputs
        self._stop_id: int | None = None

    # ------------------------------------------------------------ rows

    def encode(self, row: Row) -> list[Encoded]:
        """Return the sequences of a row: two for a preference, otherwise one.

        Raises:
            RowError: If the row has no trained tokens, or they cannot be determined.
            ValueError: If the template or the tokenizer is unusable for any row.
        """
        match row:
            case Chat():
                return [self._chat(row)]
            case Instruction():
                if self.tokenizer.chat_template:
                    return [self._chat(Chat(row.messages()))]
                return [self._instruction(row)]
            case Text():
                return [self._text(row)]
            case Preference():
                return self._preference(row)

    def _chat(self, chat: Chat, only_last: bool = False) -> Encoded:
        stop = self.stop_id
        whole = self._render(chat, len(chat.messages))
        turns = [i for i, message in enumerate(chat.messages) if message["role"] == "assistant"]
        spans = [self._turn(chat, whole, i) for i in (turns[-1:] if only_last else turns)]
        encoded = self._encode_spans(whole, spans)
        last = max(i for i, trained in enumerate(encoded.mask) if trained)
        if encoded.ids[last] != stop:
            raise RowError(
                "the last assistant turn does not end with the stop token",
                f"it ends with {self.tokenizer.convert_ids_to_tokens(encoded.ids[last])!r}",
            )
        if self.train_on_inputs and not only_last:
            return Encoded(encoded.ids, [True] * len(encoded.ids))
        return encoded

    def _preference(self, row: Preference) -> list[Encoded]:
        pair = [self._chat(each, only_last=True) for each in (row.chosen, row.rejected)]
        prompts = [each.ids[: each.mask.index(True)] for each in pair]
        if prompts[0] != prompts[1]:
            raise RowError("`chosen` and `rejected` have different prompts")
        return pair

    def _instruction(self, row: Instruction) -> Encoded:
        system = f"{row.system}\n\n" if row.system else ""
        context = f"### Input:\n{row.input}\n\n" if row.input else ""
        prompt = f"{system}### Instruction:\n{row.instruction}\n\n{context}### Response:\n"
        text = prompt + row.output
        encoded = self._encode_spans(text, [(len(prompt), len(text))], add_special_tokens=True)
        mask = [True] * len(encoded.ids) if self.train_on_inputs else encoded.mask
        return self._with_end(Encoded(encoded.ids, mask))

    def _text(self, row: Text) -> Encoded:
        ids = list(self.tokenizer(row.text)["input_ids"])
        return self._with_end(Encoded(ids, [True] * len(ids)))

    def _with_end(self, encoded: Encoded) -> Encoded:
        end = self.tokenizer.eos_token_id
        if end is None:
            raise ValueError(
                "the tokenizer has no eos_token, so the model would never learn to stop: set special_tokens.eos_token."
            )
        if encoded.ids[-1] == end:
            return Encoded(encoded.ids, [*encoded.mask[:-1], True])
        return Encoded([*encoded.ids, end], [*encoded.mask, True])

    # ------------------------------------------------------------ the chat template

    @property
    def stop_id(self) -> int:
        """The token that ends the assistant's turns in the chat template.

        Raises:
            ValueError: If there is no template, or it ends turns without a special token.
        """
        if self._stop_id is None:
            self._stop_id = self._find_stop()
        return self._stop_id

    def _find_stop(self) -> int:
        if not self.tokenizer.chat_template:
            raise ValueError(
                "the tokenizer has no chat template: set chat_template to `chatml`, to a Jinja template or to its path."
            )
        messages = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _PROBE}]
        try:
            rendered = self._render(Chat(messages), 2)
        except RowError as error:
            raise ValueError(f"the chat template cannot render a question and an answer: {error}") from error
        _, found, after = rendered.partition(_PROBE)
        if not found:
            raise ValueError("the chat template does not render the content of an assistant turn.")
        special = set(self.tokenizer.all_special_ids) | {
            id_ for id_, token in self.tokenizer.added_tokens_decoder.items() if token.special
        }
        ids = self.tokenizer(after, add_special_tokens=False)["input_ids"]
        stop = next((each for each in ids if each in special), None)
        if stop is None:
            raise ValueError(
                f"the chat template ends an assistant turn with {after!r}, which has no special token: the model would "
                "never learn to stop. Add the eos_token to the template, or set chat_template: chatml."
            )
        return int(stop)

    def _render(self, chat: Chat, until: int, *, prompt: bool = False) -> str:
        try:
            text = self.tokenizer.apply_chat_template(
                chat.messages[:until], tools=chat.tools, tokenize=False, add_generation_prompt=prompt
            )
        except Exception as error:  # a template can raise any error
            raise RowError("the chat template rejects the conversation", str(error)) from error
        return str(text)

    def _turn(self, chat: Chat, whole: str, index: int) -> Span:
        """Return the span of an assistant turn in the rendered conversation, including its stop token."""
        message = chat.messages[index]
        before = self._render(chat, index, prompt=True)
        until = self._render(chat, index + 1)
        if until.startswith(before) and whole.startswith(until):
            start, end = len(before), len(until)
            text = until[start:]
            lead, found, _ = text.partition(message["content"].strip())
            # A template may change the content, but the turn must not start with a token for its role.
            if self._has_special(lead if found else text, only_first=not found):
                raise RowError(
                    "the chat template ignores add_generation_prompt",
                    f"the turn starts with {lead[:20]!r}, which the server adds and the model must not learn",
                )
            return self._cut(whole, start, end)
        # Some templates render a turn differently when others follow it, for example without its reasoning.
        return self._turn_by_content(chat, whole, index)

    def _turn_by_content(self, chat: Chat, whole: str, index: int) -> Span:
        message = chat.messages[index]
        if message.get("tool_calls") or not message["content"].strip():
            raise RowError(
                "the chat template renders a tool call differently in the middle of a conversation"
            )
        others = list(chat.messages)
        others[index] = {**message, "content": _PROBE}
        probed = self._render(Chat(others, chat.tools), len(others))
        before, found, after = probed.partition(_PROBE)
        end = len(whole) - len(after)
        if not found or not (whole.startswith(before) and whole.endswith(after) and len(before) < end):
            raise RowError("an assistant turn cannot be found in the rendered conversation")
        if whole[len(before) : end].strip() not in message["content"]:
            raise RowError("the chat template changes the text of an assistant turn")
        stop = str(self.tokenizer.convert_ids_to_tokens(self.stop_id))
        blank = len(after) - len(after.lstrip())
        if after[blank:].startswith(stop):
            end += blank + len(stop)
        return len(before), end

    def _cut(self, whole: str, start: int, end: int) -> Span:
        """Return the span of a turn without the white space after its stop token."""
        stop = str(self.tokenizer.convert_ids_to_tokens(self.stop_id))
        text = whole[start:end]
        at = text.rfind(stop)
        if at >= 0 and not text[at + len(stop) :].strip():
            end = start + at + len(stop)
        return start, end

    def _has_special(self, text: str, *, only_first: bool = False) -> bool:
        if not text.strip():
            return False
        special = set(self.tokenizer.all_special_ids)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return any(each in special for each in (ids[:1] if only_first else ids))

    # ------------------------------------------------------------ tokens

    def _encode_spans(self, text: str, spans: Sequence[Span], *, add_special_tokens: bool = False) -> Encoded:
        """Return the tokens of a text. Those inside the spans are trained."""
        found = self.tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True)
        ids, offsets = list(found["input_ids"]), found["offset_mapping"]
        if self._crosses(offsets, spans):
            ids, offsets = self._split(text, spans, ids, add_special_tokens)
        mask = [any(start <= a and b <= end and a < b for start, end in spans) for a, b in offsets]
        if not any(mask):
            raise RowError("no token of the row is trained")
        return Encoded(ids, mask)

    @staticmethod
    def _crosses(offsets: Sequence[Span], spans: Sequence[Span]) -> bool:
        borders = {border for span in spans for border in span}
        return any(a < border < b for a, b in offsets for border in borders)

    def _split(
        self, text: str, spans: Sequence[Span], whole: list[int], add_special_tokens: bool
    ) -> tuple[list[int], list[Span]]:
        """Return the tokens of a text that is split at the borders of the spans before it is tokenized.

        A tokenizer may join the last character of a prompt with the first character of the answer. This never happens
        when the model is served.
        """
        borders = [0, *(border for span in spans for border in span), len(text)]
        ids: list[int] = []
        offsets: list[Span] = []
        for number, (start, end) in enumerate(pairwise(borders)):
            if start == end:
                continue
            part = self.tokenizer(
                text[start:end],
                add_special_tokens=add_special_tokens and number == 0,
                return_offsets_mapping=True,
            )
            ids.extend(part["input_ids"])
            offsets.extend((a + start, b + start) for a, b in part["offset_mapping"])
        if self.tokenizer.decode(ids) != self.tokenizer.decode(whole):
            raise RowError("a token crosses the border between a prompt and its answer")
        return ids, offsets
