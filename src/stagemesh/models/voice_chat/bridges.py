"""How the thinker's text reaches the talker: clause by clause, or whole at the end."""

from __future__ import annotations

from stagemesh.models.voice_chat.clauses import ClauseSplitter
from stagemesh.spec.payload import Payload


class ClauseBridge:
    """Hands a clause over as soon as it is complete: the voice starts before the text ends."""

    def __init__(self) -> None:
        """Begin with no text."""
        self._splitter = ClauseSplitter()

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Take a text delta; return the clauses it completes, and the rest when it is the last."""
        clauses = self._splitter.feed(_text(payload))
        if last:
            clauses += self._splitter.close()
        return [Payload(meta={"text": clause}) for clause in clauses]


class WholeTextBridge:
    """Keeps the text back until it is whole."""

    def __init__(self) -> None:
        """Begin with no text."""
        self._parts: list[str] = []

    def push(self, payload: Payload, *, last: bool) -> list[Payload]:
        """Take a text delta; return the whole text when it is the last."""
        self._parts.append(_text(payload))
        return [Payload(meta={"text": "".join(self._parts)})] if last else []


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
