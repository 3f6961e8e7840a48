"""English text to the phoneme symbols of the voice, and symbols to the ids of its text encoder.

The voice was trained on the symbols that eSpeak prints for American English. gruut (MIT) carries a
lexicon and a grapheme-to-phoneme model in those symbols. The lexicon was recorded word by word, so
what depends on the neighbouring words is settled here: flapped and linked endings, `the` and `to`
before vowels, spelled letters, and words whose sound depends on whether they are a verb.

Contract: pure (same text, same symbols) and no text raises, provided that gruut is installed. The
first call reads the lexicon (0.3 s) and the first unknown word imports gruut's model (1 s);
`warm_up` does both ahead of time.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from stagemesh.models.voice_chat.words import PAUSES, spoken_words

PAD: Final = "_"
BEGIN: Final = "^"
END: Final = "$"

_VOWELS: Final = frozenset("aeiouæɐɑɒɔəɚɛɜɪʊʌᵻ")
_STRESSES: Final = "ˈˌ"
_LONGEST_INITIALISM: Final = 5

_LETTERS: Final[Mapping[str, str]] = {"a": "ˈeɪ", "z": "zˈiː"}
"""Names of letters that the lexicon reads as words."""
_WORDS: Final[Mapping[str, str]] = {
    "can": "kæn",
    "gone": "ɡˈɔn",
    "has": "hæz",
    "than": "ðæn",
    "during": "dˈʊɹɪŋ",
    "miz": "mˈɪz",
    "i'd've": "aɪdəv",
    "linkedin": "lˈɪŋktɪn",
}
"""Entries of the lexicon that carry a trace of the word they were recorded before, or are wrong."""
_VERBS: Final[Mapping[str, str]] = {
    "use": "jˈuːz",
    "close": "klˈoʊz",
    "live": "lˈɪv",
    "lives": "lˈɪvz",
    "read": "ɹˈiːd",
    "record": "ɹᵻkˈoːɹd",
    "lead": "lˈiːd",
    "tear": "tˈɛɹ",
    "wind": "wˈaɪnd",
    "house": "hˈaʊz",
    "present": "pɹɪzˈɛnt",
    "excuse": "ɛkskjˈuːz",
}
"""How these sound as verbs."""
_BEFORE_VERBS: Final = frozenset(  # a string of words reads best
    "to i you we they he she it who will can could would should may might must shall "  # noqa: SIM905
    "do did not please don't can't won't didn't i'll you'll we'll they'll he'll she'll".split()
)
"""Words after which a noun hardly comes."""
_SPELLED: Final = frozenset({"US", "IT", "AI", "ID", "IO"})
"""Initialisms that look like words of the lexicon."""

_DATA: Final = "gruut_lang_en"
_INSTALL: Final = "pip install gruut==2.4.0"


def phonemize(text: str) -> str:
    """Return the symbols of `text`, one character each, words separated by spaces.

    Pauses are kept as `,.;:?!` after the word before them. The result is empty when nothing in the
    text can be said. Raises `ModuleNotFoundError` when gruut is not installed.
    """
    tokens = spoken_words(text)
    sounds = [
        token if token in PAUSES else _word(tokens, index) for index, token in enumerate(tokens)
    ]
    pieces: list[str] = []
    for index, sound in enumerate(sounds):
        following = sounds[index + 1] if index + 1 < len(sounds) else ""
        if sound in PAUSES:
            if pieces:
                pieces[-1] += sound
        elif sound:
            pieces.append(_joined(tokens[index].lower(), sound, following))
    return " ".join(pieces) if any(sound not in PAUSES for sound in sounds) else ""


def encode(symbols: str, ids: Mapping[str, int]) -> list[int]:
    """Return the input ids of `symbols`: begin, then every symbol, a pad after each, then end.

    Symbols that the voice does not know are left out. Empty symbols give no ids.
    """
    if not symbols:
        return []
    encoded = [ids[BEGIN], ids[PAD]]
    for symbol in symbols:
        if symbol in ids:
            encoded += (ids[symbol], ids[PAD])
    return [*encoded, ids[END]]


def warm_up() -> None:
    """Load what `phonemize` needs; raises `ModuleNotFoundError` when gruut is not installed."""
    _lexicon()
    _guesser()


@functools.cache
def _data_folder() -> Path:
    spec = find_spec(_DATA)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"package `{_DATA}` is not installed; run `{_INSTALL}`", name=_DATA
        )
    return Path(spec.submodule_search_locations[0]) / "espeak"


@functools.cache
def _lexicon() -> dict[str, str]:
    """Return the sound of every word, the preferred one where there are several.

    gruut looks words up one by one in a table without an index, 12 ms each; reading all takes 0.3
    s.
    """
    source = f"{(_data_folder() / 'lexicon.db').as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(source, uri=True)) as database:
        rows = database.execute("SELECT word, phonemes FROM word_phonemes ORDER BY pron_order DESC")
        return {word: sounds.replace(" ", "") for word, sounds in rows}


@functools.cache
def _guesser() -> Callable[[str], Sequence[str]]:
    from gruut.g2p import GraphemesToPhonemes  # noqa: PLC0415  # heavy

    guesser: Callable[[str], Sequence[str]] = GraphemesToPhonemes(
        _data_folder() / "g2p" / "model.crf"
    )
    return guesser


def _word(tokens: Sequence[str], index: int) -> str:
    """Return the sound of the word at `index`, not yet joined to the next one."""
    token = tokens[index]
    word = token.lower()
    if _is_letter(tokens, index):
        return _letter(word)
    if word in _VERBS and index > 0 and tokens[index - 1].lower() in _BEFORE_VERBS:
        return _VERBS[word]
    if token in _SPELLED or (word not in _lexicon() and _is_initialism(token)):
        return "".join(_letter(letter) for letter in word)
    if word not in _lexicon() and word.endswith("'s"):
        return _possessive(_word([*tokens[:index], token[:-2]], index))
    sound = _WORDS.get(word) or _lexicon().get(word) or "".join(_guesser()(word))
    if sound.endswith("ŋ") and "ng" not in word:
        sound = sound[:-1] + "n"
    return sound


def _is_initialism(token: str) -> bool:
    return token.isupper() and token.isalpha() and len(token) <= _LONGEST_INITIALISM


def _possessive(sound: str) -> str:
    """Return `sound` with the ending `'s`."""
    if sound.endswith(tuple("szʃʒ")):
        return sound + "ᵻz"
    return sound + ("s" if sound.endswith(tuple("pkftθ")) else "z")


def _is_letter(tokens: Sequence[str], index: int) -> bool:
    """Tell whether the token is a letter to be named: alone, and no article or pronoun."""
    token = tokens[index]
    if len(token) != 1:
        return False
    if token not in "aAI":
        return True
    following = tokens[index + 1 : index + 2]
    neighbours = (*tokens[max(index - 1, 0) : index], *following)
    if any(n.isupper() and n not in "AI" and len(n) == 1 for n in neighbours):
        return token != "a"
    return token == "A" and index > 0 and (not following or following[0] in PAUSES)


def _letter(letter: str) -> str:
    return _LETTERS.get(letter) or _lexicon().get(letter, "")


def _joined(word: str, sound: str, following: str) -> str:
    """Return `sound` as it is before the sound `following`; a pause or nothing is no vowel."""
    before_vowel = following.lstrip(_STRESSES)[:1] in _VOWELS
    if before_vowel:
        return {"the": "ðɪ", "to": "tʊ"}.get(word, sound)
    if sound.endswith("ɚɹ"):
        return sound[:-1]
    if sound.endswith("ɾ"):
        return sound[:-1] + "t"
    return sound
