"""A module for the `generation` engine without a network: it spells its input by letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stagemesh.spec.generation import GenerationSession, ModuleContext, ModuleOutput
from stagemesh.spec.payload import Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellingParams:
    """How a request may be spelled."""

    tempo: Literal["brisk", "sleepy"] = "brisk"
    """The tempo; the module does not take all."""


class Speller:
    """One request; its bucket is the class of its next letter."""

    def __init__(self, name: str) -> None:
        """Nothing was said yet."""
        self.name = name
        self.letters = ""
        self.complete = False

    def push(self, payload: Payload, *, last: bool) -> None:
        """Take letters; digits are refused, and `?` breaks."""
        text = str(payload.meta["text"])
        if any(letter.isdigit() for letter in text):
            raise ValueError("digits cannot be spelled")
        if "?" in text:
            raise RuntimeError("broken")
        self.letters += text
        self.complete = last

    def bucket(self) -> str | None:
        """Keep the last letter back until the input is whole, since it ends the answer."""
        if not self.letters or (len(self.letters) == 1 and not self.complete):
            return None
        if self.letters[0] == "*":
            raise RuntimeError("no bucket")
        return "vowel" if self.letters[0] in "aeiou" else "other"

    def spell(self) -> ModuleOutput:
        """Say the next letter."""
        letter, self.letters = self.letters[0], self.letters[1:]
        done = self.complete and not self.letters
        return ModuleOutput(
            payloads=(Payload(meta={"text": letter.upper()}),), done=done, units={"letters": 1}
        )


class SpellingModule:
    """Spells; remembers every batch."""

    def __init__(self, context: ModuleContext) -> None:
        """No batch was run yet."""
        self.context = context
        self.batches: list[list[str]] = []

    def open(self, request_id: str, params: object) -> Speller:
        """Start a request; with parameters, in their tempo."""
        if isinstance(params, SpellingParams) and params.tempo == "sleepy":
            raise ValueError("nobody spells in their sleep")
        return Speller(request_id)

    def run(self, sessions: Sequence[GenerationSession]) -> list[ModuleOutput]:
        """Spell one letter each; `!` breaks the batch and `#` loses its output."""
        spellers = [session for session in sessions if isinstance(session, Speller)]
        self.batches.append([speller.name for speller in spellers])
        if any(speller.letters[0] == "!" for speller in spellers):
            raise RuntimeError("broken batch")
        return [speller.spell() for speller in spellers if speller.letters[0] != "#"]


def load(context: ModuleContext) -> SpellingModule:
    """Make the module; nothing is read."""
    return SpellingModule(context)
