"""The clause splitter: what it cuts, and that it cuts the same however text arrives."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.models.voice_chat.clauses import ClauseSplitter
from tests.models.voice_chat.splitting import split_clauses

TEXTS = st.text(alphabet="ab.,!?;: \n\"')D1r—", max_size=300) | st.text(max_size=200)


def squeezed(text: str) -> str:
    """The text without any white space."""
    return "".join(text.split())


@given(TEXTS)
def test_clauses_joined_are_the_text(text: str) -> None:
    """Nothing is lost, added or moved, up to white space."""
    assert squeezed("".join(split_clauses(text))) == squeezed(text)


@given(TEXTS, st.lists(st.integers(min_value=0, max_value=300), max_size=20))
def test_arrival_does_not_matter(text: str, cuts: list[int]) -> None:
    """Text in pieces of any size gives the clauses of the whole text."""
    splitter = ClauseSplitter()
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    clauses = [clause for piece in pieces for clause in splitter.feed(piece)] + splitter.close()
    assert clauses == split_clauses(text)


@given(TEXTS)
def test_letter_by_letter_is_the_same_as_whole(text: str) -> None:
    """The smallest pieces give the clauses of the whole text too."""
    splitter = ClauseSplitter()
    clauses = [clause for letter in text for clause in splitter.feed(letter)] + splitter.close()
    assert clauses == split_clauses(text)


@given(TEXTS)
def test_a_clause_handed_on_is_not_cut_again(text: str) -> None:
    """A second splitter that gets one clause at a time keeps every clause as it is."""
    clauses = split_clauses(text)
    second = ClauseSplitter()
    assert [c for clause in clauses for c in second.feed(clause) + second.close()] == clauses


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Hello there. How are you?", ["Hello there.", "How are you?"]),
        ("Well, it rains.", ["Well, it rains."]),
        ("Of course, it rains.", ["Of course,", "it rains."]),
        ("Yes! No? Maybe; so: on", ["Yes!", "No?", "Maybe;", "so:", "on"]),
        ("Ask Dr. Smith, J. Doe or I. See?", ["Ask Dr. Smith,", "J. Doe or I.", "See?"]),
        ('He said "stop." Then left.', ['He said "stop."', "Then left."]),
        ("It is 3.14 or 10:30 today.", ["It is 3.14 or 10:30 today."]),
        ("1. Open it\n2. Close it", ["1. Open it", "2. Close it"]),
        ("  \n ", []),
    ],
)
def test_cuts_are_where_a_speaker_would_pause(text: str, clauses: list[str]) -> None:
    """Stops always cut, a comma cuts when enough was said, abbreviations and numbers never do."""
    assert split_clauses(text) == clauses


def test_a_clause_is_given_as_soon_as_it_is_sure() -> None:
    """The white space after a full stop is enough; the rest of the text is not waited for."""
    assert ClauseSplitter().feed("Sure thing. An") == ["Sure thing."]


def test_the_first_clause_is_kept_short() -> None:
    """A long sentence without any pause is cut earlier when it is the first."""
    sentence = "word " * 40
    splitter = ClauseSplitter()
    first = splitter.feed(sentence)[0]
    assert len(first) < 90
    assert all(len(clause) > 200 for clause in splitter.feed(sentence * 3))


def test_text_without_white_space_is_cut_anyway() -> None:
    """One endless word cannot hold the speech back for ever."""
    assert max(map(len, split_clauses("a" * 2_000))) == 400
