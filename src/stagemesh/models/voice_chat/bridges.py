"""How the thinker's text reaches the talker: clause by clause, or whole at the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from stagemesh.models.voice_chat.clauses import ClauseSplitter
from stagemesh.spec.payload import Payload


@dataclass(slots=True)
class ClauseBridge:
    """Hands a clause over as soon as it is complete, so that the voice starts before the text ends."""

    splitter: ClauseSplitter = field(default_factory=ClauseSplitter)

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Take a text delta; return the clauses that it completes, and the rest when it is the last."""
        clauses = self.splitter.feed(_text(payload))
        if last:
            clauses += self.splitter.close()
        return [Payload(meta={"text": clause}) for clause in clauses]


@dataclass(slots=True)
class WholeTextBridge:
    """Keeps the text back until it is whole."""

    parts: list[str] = field(default_factory=list)

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Take a text delta; return the whole text when it is the last."""
        self.parts.append(_text(payload))
        return [Payload(meta={"text": "".join(self.parts)})] if last else []


def _text(payload: Payload) -> str:
    text = payload.meta.get("text", "")
    if not isinstance(text, str):
        message = f"the thinker's `text` must be a string, got `{text!r}`"
        raise TypeError(message)
    return text


def clauses() -> ClauseBridge:
    """Make the bridge of one request that hands over clauses."""
    return ClauseBridge()


def whole_text() -> WholeTextBridge:
    """Make the bridge of one request that hands over the whole text."""
    return WholeTextBridge()
