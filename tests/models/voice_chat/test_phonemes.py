"""English text becomes the symbols that the voice was trained on."""

# ruff: noqa: RUF001
# phonetic letters look like Latin ones

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagemesh.models.voice_chat._sources import ONNX_CONFIG_FILE, VOICE, source_file
from stagemesh.models.voice_chat.phonemes import encode, phonemize

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ids() -> dict[str, int]:
    """The symbols of the voice."""
    voice = json.loads(Path(source_file(VOICE, ONNX_CONFIG_FILE)).read_text(encoding="utf-8"))
    return {symbol: numbers[0] for symbol, numbers in voice["phoneme_id_map"].items()}


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("The capital of France is Paris.", "ðə kˈæpɪɾəl ʌv fɹˈæns ɪz pˈæɹɪs."),
        ("the east to Ann", "ðɪ ˈiːst tʊ ˈæn"),
        ("water, bird", "wˈɔːɾɚ, bˈɜːd"),
        ("over it, over all", "ˌoʊvɚɹ ɪt, ˌoʊvɚɹ ˈɔːl"),
        ("I use the use.", "ˈaɪ jˈuːz ðə jˈuːs."),
        ("A B C, plan A.", "ˈeɪ bˈiː sˈiː, plˈæn ˈeɪ."),
        ("US IT", "jˈuːˈɛs ˈaɪtˈiː"),
        ("", ""),
        ("?!", ""),
    ],
)
def test_words_have_the_symbols_of_american_english(text: str, symbols: str) -> None:
    """Stress before vowels, flaps, linked endings, weak forms, verbs and spelled letters."""
    assert phonemize(text) == symbols


def test_unknown_words_are_guessed() -> None:
    """A word that no lexicon has still gets sounds; its possessive only an ending more."""
    base = phonemize("blorptastic")
    assert base
    assert phonemize("blorptastic's") == base + "s"


@given(text=st.text(max_size=40))
@settings(max_examples=40)
def test_any_text_gives_symbols_of_the_voice(ids: dict[str, int], text: str) -> None:
    """No text raises, and nothing that comes out is unknown to the voice."""
    assert set(phonemize(text)) <= ids.keys()


def test_ids_have_a_pad_between_symbols(ids: dict[str, int]) -> None:
    """Begin, every symbol with a pad after it, end; nothing for no symbols."""
    assert encode("aɪ", ids) == [1, 0, ids["a"], 0, ids["ɪ"], 0, 2]
    assert encode("", ids) == []


def test_phonemes_are_made_without_torch() -> None:
    """Importing and using the module loads neither torch nor, for known words, gruut."""
    code = (
        "import sys; from stagemesh.models.voice_chat import phonemes; phonemes.phonemize('hello');"
        "sys.exit(any(name in sys.modules for name in ('torch', 'gruut')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
