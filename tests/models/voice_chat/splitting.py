"""Clauses of a whole text, for tests with and without torch."""

from __future__ import annotations

from stagemesh.models.voice_chat.clauses import ClauseSplitter


def split_clauses(text: str) -> list[str]:
    """Return the clauses of a whole text."""
    splitter = ClauseSplitter()
    return splitter.feed(text) + splitter.close()
