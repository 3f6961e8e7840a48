"""Text to tokens and back: chat template, and answers in pieces that never split a character."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase

_INCOMPLETE: Final = "\ufffd"
"""What an unfinished UTF-8 character is decoded to."""


class Tokenizer:
    """The tokenizer of a checkpoint."""

    def __init__(self, folder: Path) -> None:
        """Load it from `folder` alone."""
        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )

    def encode(self, text: str, system: str | None) -> list[int]:
        """Return the prompt for a user's message; without a chat template, the text as it is."""
        if self._tokenizer.chat_template is None:
            whole = text if system is None else f"{system}\n{text}"
            return cast("list[int]", self._tokenizer(whole)["input_ids"])
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": text})
        encoded = self._tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return cast("list[int]", encoded["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        return cast("str", self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class Detokenizer:
    """Turns the tokens of one answer into pieces of text whose sum is the text of all of them.

    A token's text may depend on the one before it (spaces), so new tokens are decoded behind those
    of the last piece, whose text is then cut off.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Start before the first token."""
        self._tokenizer = tokenizer
        self._last: list[int] = []
        self._new: list[int] = []

    def push(self, token: int) -> str:
        """Take a token; return the text that is certain now, which may be empty."""
        self._new.append(token)
        piece = self._piece()
        if not piece or piece.endswith(_INCOMPLETE):
            return ""
        self._last, self._new = self._new, []
        return piece

    def flush(self) -> str:
        """Return what was held back, an unfinished character as the replacement character."""
        piece = self._piece()
        self._last, self._new = [], []
        return piece

    def _piece(self) -> str:
        before = self._tokenizer.decode(self._last)
        return self._tokenizer.decode(self._last + self._new)[len(before) :]


class StopText:
    """Cuts an answer at the first of some strings, holding back what might be the start of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        """Without `stops` everything passes."""
        self._stops = stops
        self._held = ""
        self.found = False
        """Whether a stop string has ended the answer."""

    def push(self, piece: str, *, may_stop: bool) -> str:
        """Take a piece of text; return what may be shown. Only `may_stop` looks for the strings."""
        text = self._held + piece
        if not may_stop:
            self._held = ""
            return text
        ends = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """Return what was held back; the answer ended otherwise."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that `stop` starts with."""
    longest = min(len(stop) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
