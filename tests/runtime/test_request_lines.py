"""Lines about one request, from the stage that writes them to whoever reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.runtime.request_lines import about, read


@given(request=st.text(max_size=30), text=st.text(max_size=60))
def test_every_line_tells_its_request(request: str, text: str) -> None:
    """Whatever the name of the request is, it takes no line of its own."""
    found = [read(line) for line in about(request, text).split("\n")[:-1]]
    assert found == [(request, line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "line", ["", "a word", "\x1e", "\x1e{", '\x1e"r"', "\x1e5\x1fword", "\x1enonsense\x1fword"]
)
def test_any_other_line_is_about_nothing(line: str) -> None:
    """Also one that only looks like it, which is left as it is."""
    assert read(line) == (None, line)
