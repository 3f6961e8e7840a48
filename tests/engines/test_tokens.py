"""Text to tokens and back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.engines.ar.tokens import Detokenizer, StopText, Tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def tokenizer(tiny_model: Callable[[str], Path]) -> Tokenizer:
    """The byte tokenizer of a tiny checkpoint."""
    return Tokenizer(tiny_model("llama"))


def test_a_prompt_goes_through_the_chat_template(tokenizer: Tokenizer) -> None:
    """The question is a user's message behind the system text, and an answer is opened."""
    assert tokenizer.decode(tokenizer.encode("hi", None)) == "<user>hi<answer>"
    assert tokenizer.decode(tokenizer.encode("hi", "be")) == "<system>be<user>hi<answer>"


@given(text=st.text(max_size=20))
def test_pieces_never_split_a_character(tokenizer: Tokenizer, text: str) -> None:
    """Byte tokens come out as whole characters whose sum is the text."""
    prefix = len(tokenizer.encode("", None)) - len("<answer>")
    tokens = tokenizer.encode(text, None)[prefix : -len("<answer>")]
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in tokens]
    assert all("\ufffd" not in piece for piece in pieces if "\ufffd" not in text)
    assert "".join(pieces) + detokenizer.flush() == text


def test_an_unfinished_character_is_told_at_the_end(tokenizer: Tokenizer) -> None:
    """A text that ends within a character ends with the replacement character."""
    detokenizer = Detokenizer(tokenizer)
    start = tokenizer.encode("é", None)[len("<user>")]
    assert detokenizer.push(start) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


def test_without_a_template_the_text_is_the_prompt(
    tiny_model: Callable[[str], Path], tmp_path: Path
) -> None:
    """A base model's tokenizer has no chat template; a system text stands before it."""
    shutil.copytree(tiny_model("llama"), tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    base = Tokenizer(tmp_path / "base")
    assert base.decode(base.encode("hi", None)) == "hi"
    assert base.decode(base.encode("hi", "be")) == "be\nhi"


@given(
    st.lists(st.text("ab.", max_size=3), max_size=12),
    st.lists(st.text("ab.", min_size=1, max_size=4), max_size=3),
)
def test_text_is_cut_at_the_first_stop_string(pieces: list[str], stops: list[str]) -> None:
    """However a text is cut, all before the earliest stop string is shown, and no more."""
    stop_text = StopText(stops)
    shown = ""
    for piece in pieces:
        shown += stop_text.push(piece, may_stop=True)
        if stop_text.found:
            break
    whole = "".join(pieces)
    ends = [whole.find(stop) + len(stop) for stop in stops if stop in whole]
    assert stop_text.found == bool(ends)
    if not ends:
        assert shown + stop_text.flush() == whole
    else:
        assert whole.startswith(shown)
        assert not any(stop in shown for stop in stops)
        assert any(whole[len(shown) :].startswith(stop) for stop in stops)


def test_nothing_is_looked_for_before_it_may_stop() -> None:
    """Text that may not stop yet passes, stop strings included."""
    stop_text = StopText(["."])
    assert stop_text.push("a.b", may_stop=False) == "a.b"
    assert stop_text.push("c.d", may_stop=True) == "c"
    assert stop_text.found
