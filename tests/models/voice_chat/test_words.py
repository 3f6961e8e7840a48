"""Numbers, signs and abbreviations become the words a reader would say."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.models.voice_chat.words import PAUSES, cardinal, ordinal, spoken_words


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (
            "It costs $5.50 or £8.01.",
            "It costs five dollars fifty cents or eight pounds one penny .",
        ),
        ("$1, $2.5 million", "one dollar , two point five million dollars"),
        ("50% of 3.14", "fifty percent of three point one four"),
        (
            "In 1999, 2005 and 1900",
            "In nineteen ninety nine , two thousand five and nineteen hundred",
        ),
        ("the 1990s and 80s", "the nineteen nineties and eighties"),
        ("at 10:30, 9:05, 8:00", "at ten thirty , nine oh five , eight o'clock"),
        ("1,234,567", "one million two hundred thirty four thousand five hundred sixty seven"),
        ("22nd and 100th", "twenty second and one hundredth"),
        ("007 and -5", "zero zero seven and minus five"),
        (
            "Dr. Smith vs. Mr. Jones, e.g. today",
            "doctor Smith versus mister Jones , for example today",
        ),
        ("*bold* `code` 5°C 日本 café 🙂", "bold code five degrees celsius cafe"),
        ("site.com - rock 'n' roll (yes)", "site dot com , rock n roll , yes ,"),
        ("Wait... what?!", "Wait . what ?"),
        ("🙂 ... !?", ""),
    ],
)
def test_text_is_read_as_a_person_would(text: str, spoken: str) -> None:
    """Each kind of number, sign and abbreviation has its reading."""
    assert " ".join(spoken_words(text)) == spoken


@given(st.text(max_size=200) | st.text(alphabet="0123456789.,:$€£%-/stndrh '", max_size=60))
def test_any_text_gives_words_and_single_pauses(text: str) -> None:
    """No text raises; tokens are words or pauses; no two pauses meet and none comes first."""
    tokens = spoken_words(text)
    assert all(
        token in PAUSES or re.fullmatch(r"[A-Za-z](?:[A-Za-z']*[A-Za-z])?", token)
        for token in tokens
    )
    pauses = [token in PAUSES for token in [",", *tokens]]
    assert not any(a and b for a, b in itertools.pairwise(pauses))


def test_numbers_have_their_names() -> None:
    """Cardinals and ordinals at the joints of the naming."""
    assert [cardinal(n) for n in (0, 13, 21, 100, 1_001, 10**14)] == [
        "zero",
        "thirteen",
        "twenty one",
        "one hundred",
        "one thousand one",
        "one hundred trillion",
    ]
    assert [ordinal(n) for n in (1, 12, 20, 23, 1_000)] == [
        "first",
        "twelfth",
        "twentieth",
        "twenty third",
        "one thousandth",
    ]
