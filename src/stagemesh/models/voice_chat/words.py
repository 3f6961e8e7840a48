"""Written English to the words and pauses a reader would say: numbers, signs and abbreviations.

Contract: `spoken_words` is pure, never raises and gives tokens that are either a word (letters and
apostrophes, its case kept) or one of the pauses `,.;:?!`. What has no reading (emoji, other
scripts, mark-up) is left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

PAUSES: Final = frozenset(",.;:?!")

_ONES: Final[list[str]] = (  # noqa: SIM905  # a list of words reads best as words
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS: Final = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_SCALES: Final = ("", " thousand", " million", " billion", " trillion")
_ORDINALS: Final = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}  # fmt: skip
_CURRENCIES: Final = {"$": ("dollar", "cent"), "€": ("euro", "cent"), "£": ("pound", "penny")}
_PLURALS: Final = {"penny": "pence"}
_LONGEST_NUMBER: Final = 3 * len(_SCALES)

_CHARACTERS: Final = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u2026": ".", "\u2013": "-", "\u2212": "-", "\u2014": " - ",
        "\u00d7": " times ", "\u00f7": " divided by ", "\u00b0": " degrees ", "=": " equals ",
        "+": " plus ", "^": " to the power of ", "@": " at ", "&": " and ",
    }
)  # fmt: skip
_ABBREVIATIONS: Final = {
    "dr": "doctor", "mr": "mister", "mrs": "missus", "ms": "miz", "prof": "professor",
    "st": "saint", "jr": "junior", "sr": "senior", "vs": "versus", "e.g": "for example",
    "i.e": "that is", "approx": "approximately", "a.m": "A M", "p.m": "P M",
    "inc": "incorporated", "ltd": "limited", "fig": "figure", "u.s": "U S", "u.k": "U K",
}  # fmt: skip


def spoken_words(text: str) -> list[str]:
    """Return the words and pauses of `text` in order; a pause follows a word, never a pause."""
    text = _ascii(text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    tokens: list[str] = []
    for token in re.findall(r"[A-Za-z']+|[,.;:?!]", text):
        if token in PAUSES:
            if tokens and tokens[-1] in PAUSES:
                # the stronger of the two stays; `...` and `!?` are one pause
                tokens[-1] = token if tokens[-1] == "," else tokens[-1]
            elif tokens:
                tokens.append(token)
        elif word := token.strip("'"):
            tokens.append(word)
    return tokens


def cardinal(number: int) -> str:
    """Return `number`, from 0 and under 10^15, in words: one thousand two hundred thirty four."""
    if number < len(_ONES):
        return _ONES[number]
    groups: list[str] = []
    for scale in _SCALES:
        number, group = divmod(number, 1000)
        if group:
            groups.append(_below_thousand(group) + scale)
    return " ".join(reversed(groups))


def ordinal(number: int) -> str:
    """Return the place `number` in words: `22` is twenty second."""
    head, _, last = cardinal(number).rpartition(" ")
    if last in _ORDINALS:
        last = _ORDINALS[last]
    else:
        last = last.removesuffix("y") + ("ieth" if last.endswith("y") else "th")
    return f"{head} {last}".strip()


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest >= len(_ONES):
        words.append(_TENS[rest // 10])
        rest %= 10
    if rest:
        words.append(_ONES[rest])
    return " ".join(words)


def _digits(text: str) -> str:
    return " ".join(_ONES[int(digit)] for digit in text if digit.isdigit())


def _number(text: str) -> str:
    """Read an integer with optional thousands commas; what is no plain number digit by digit."""
    plain = text.replace(",", "")
    if len(plain) > _LONGEST_NUMBER or (len(plain) > 1 and plain[0] == "0"):
        return _digits(plain)
    return cardinal(int(plain))


def _decimal(match: re.Match[str]) -> str:
    return f" {_number(match[1])} point {_digits(match[2])} "


def _year(match: re.Match[str]) -> str:
    century, rest = int(match[1]), int(match[2])
    if century == 20 and rest < 10:  # noqa: PLR2004  # two thousand and five, not twenty oh five
        return f" {cardinal(2000 + rest)} "
    if rest == 0:
        return f" {cardinal(century)} hundred "
    return f" {cardinal(century)} {'oh ' if rest < 10 else ''}{cardinal(rest)} "  # noqa: PLR2004


def _decade(match: re.Match[str]) -> str:
    tens = int(match[2])
    name = _TENS[tens] if tens else "hundred"
    plural = name.removesuffix("y") + ("ies" if name.endswith("y") else "s")
    return f" {cardinal(int(match[1])) if match[1] else ''} {plural} "


def _time(match: re.Match[str]) -> str:
    hour, minute = int(match[1]), int(match[2])
    if minute == 0:
        return f" {cardinal(hour)} o'clock "
    return f" {cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)} "  # noqa: PLR2004


def _money(match: re.Match[str]) -> str:
    unit, part = _CURRENCIES[match[1]]
    amount, cents, scale = _number(match[2]), match[3], match[4]
    if scale is not None:
        point = f" point {_digits(cents)}" if cents else ""
        return f" {amount}{point} {scale} {unit}s "
    whole = f"{amount} {unit}{'' if amount == 'one' else 's'}"
    if not cents or int(cents) == 0:
        return f" {whole} "
    count = int(cents.ljust(2, "0")[:2])
    parts = part if count == 1 else _PLURALS.get(part, f"{part}s")
    return f" {whole} {cardinal(count)} {parts} "


def _ordinal(match: re.Match[str]) -> str:
    digits = match[1].replace(",", "")
    return f" {ordinal(int(digits)) if len(digits) <= _LONGEST_NUMBER else _digits(digits)} "


def _ascii(text: str) -> str:
    """Map to ASCII: accents off, typographic signs to plain ones or words, the rest to spaces."""
    decomposed = unicodedata.normalize("NFKD", text.translate(_CHARACTERS))
    kept = (c for c in decomposed if not unicodedata.combining(c))
    return "".join(c if c.isascii() or c in _CURRENCIES else " " for c in kept).translate(
        _CHARACTERS
    )


_NUMBER: Final = r"(\d{1,3}(?:,\d{3})+|\d+)"
_Rewrite = str | Callable[[re.Match[str]], str]
_TABLE: Final[tuple[tuple[str, _Rewrite], ...]] = (
    (r"(?i)https?://(?:www\.)?|\bwww\.", " "),
    (r"(?i)(?<=degrees )\s*c\b", " celsius"),
    (r"(?i)(?<=degrees )\s*f\b", " fahrenheit"),
    (r"(?i)\betc\.", "et cetera."),
    (
        r"(?i)(?<![\w.])(" + "|".join(map(re.escape, _ABBREVIATIONS)) + r")\.",
        lambda match: _ABBREVIATIONS[match[1].lower()] + " ",
    ),
    (r"([$€£]) ?" + _NUMBER + r"(?:\.(\d+))?(?: (thousand|million|billion|trillion))?", _money),
    (r"%", " percent "),
    (r"(?<![\d:])([01]?\d|2[0-3]):([0-5]\d)(?![\d:])", _time),
    (r"(?i)\b" + _NUMBER + r"(?:st|nd|rd|th)\b", _ordinal),
    (r"\b(\d\d)?(\d)0'?s\b", _decade),
    (r"(?<![\w.,-])-(?=[\d.])", " minus "),
    (r"(?<=\d)-(?=\d)", " to "),
    (r"(?<=\d) ?[/] ?(?=\d)", " over "),
    (_NUMBER + r"\.(\d+)", _decimal),
    (r"(?<![\d,.])(1[1-9]|20)(\d\d)(?![\d]|,\d)", _year),
    (_NUMBER, lambda match: f" {_number(match[1])} "),
    (r"(?<=[A-Za-z])\.(?=[A-Za-z]{2})", " dot "),  # names of sites and files
    (r"(?<![A-Za-z])([A-Za-z])\.(?=[A-Za-z](?![A-Za-z]))", r"\1 "),  # initials, written together
    (r"(?<![A-Za-z])([A-HJ-Z])\.(?=\s+[A-Z])", r"\1 "),
    (r"(?:(?<=\s)|^)-+(?=\s|$)|[()]", " , "),
)
_REWRITES: Final = tuple((re.compile(pattern), rewrite) for pattern, rewrite in _TABLE)
