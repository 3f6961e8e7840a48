"""Tables and sentences on screens of any width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagemesh.plan.table import table, wrapped
from stagemesh.plan.words import plural

ROWS = [
    ("stage", "axes", "devices", "from"),
    ("thinker", "tp=2", "0,1", "strategy.yaml:3:24, --stage-overrides"),
    ("talker", "-", "2", "model default"),
]


def test_a_table_has_columns() -> None:
    """Two blanks apart; nothing is broken where nobody looks at columns."""
    assert list(table(ROWS, headed=True)) == [
        "stage    axes  devices  from",
        "thinker  tp=2  0,1      strategy.yaml:3:24, --stage-overrides",
        "talker   -     2        model default",
    ]


def test_the_last_column_is_broken_where_there_is_room() -> None:
    """Further lines stand below its first."""
    assert list(table(ROWS, 55, headed=True))[1:3] == [
        "thinker  tp=2  0,1      strategy.yaml:3:24,",
        "                        --stage-overrides",
    ]


def test_columns_that_do_not_fit_stand_below_their_row() -> None:
    """With their heading; those to the left stay, and what is empty is left out."""
    assert list(table(ROWS, 46, headed=True)) == [
        "stage    axes  devices",
        "thinker  tp=2  0,1",
        "    from: strategy.yaml:3:24,",
        "        --stage-overrides",
        "talker   -     2",
        "    from: model default",
    ]
    assert list(table(ROWS, 12, headed=True)) == [
        "stage",
        "thinker",
        "    axes:",
        "        tp=2",
        "    devices:",
        "        0,1",
        "    from:",
        "        strategy.yaml:3:24,",
        "        --stage-overrides",
        "talker",
        "    devices:",
        "        2",
        "    from:",
        "        model",
        "        default",
    ]


def test_a_table_without_heading_folds_below_its_second_column() -> None:
    """So that the first one still tells what a line belongs to."""
    rows = [("values", "a.long.path = 1", "strategy.yaml:3:24"), ("values", "b = 2", "default")]
    assert list(table(rows, 30)) == [
        "values  a.long.path = 1",
        "          strategy.yaml:3:24",
        "        b = 2",
        "          default",
    ]


def test_a_first_cell_is_not_repeated() -> None:
    """It holds for the lines below."""
    rows = [("edges", "a"), ("edges", "b"), ("memory", "c")]
    assert list(table(rows)) == ["edges   a", "        b", "memory  c"]


def test_a_table_cannot_change_the_terminal() -> None:
    """Names come from files."""
    assert list(table([("a\x1b", "b\tc")])) == ["a?  b c"]
    assert list(table([])) == []


def test_a_sentence_breaks_between_words() -> None:
    """Further lines are set in, a word that is too long stays whole, and blanks in front too."""
    assert wrapped("one two three", None) == ["one two three"]
    assert wrapped("one two three", 8, "  ") == ["one two", "  three"]
    assert wrapped("  help: incomprehensibilities", 12, "    ") == [
        "  help:",
        "    incomprehensibilities",
    ]


def test_a_count_says_one_or_many() -> None:
    """In English."""
    assert [plural(number, "stage") for number in (0, 1, 2)] == ["0 stages", "1 stage", "2 stages"]


@given(st.lists(st.text(alphabet="ab -", max_size=30), min_size=4, max_size=4), st.integers(1, 80))
def test_nothing_is_lost_at_any_width(cells: list[str], width: int) -> None:
    """Every word of a table is on the screen, whatever its width."""
    rows = [("head", "one", "two", "six"), tuple(cells)]
    shown = " ".join(table(rows, width, headed=True)).split()
    words = {word for cell in cells for word in cell.split() if cell != "-"}
    assert words <= set(shown)
