"""Which name was meant: one function for flags, axes, stages, models, files and keys."""

from __future__ import annotations

import pytest

from stagemesh.spec.diagnostic import did_you_mean, nearest


@pytest.mark.parametrize(
    ("got", "names", "meant"),
    [
        ("tp", ["tp", "dp"], "tp"),
        ("TP", ["dp", "tp"], "tp"),
        ("h200", ["H100", "H200"], "H200"),
        ("Ab", ["AB", "ab"], "AB"),
        ("max_num_seq", ["max_num_seqs", "max_model_len"], "max_num_seqs"),
        ("MAX_NUM_SEQ", ["max_num_seqs", "max_model_len"], "max_num_seqs"),
        ("MTTS400", ["MTTS4000"], "MTTS4000"),
        ("zebra", ["tp", "dp"], None),
        ("", ["tp"], None),
        ("tp", [], None),
    ],
)
def test_a_name_in_other_letters_is_nearest_of_all(
    got: str, names: list[str], meant: str | None
) -> None:
    """Then one that is written nearly so."""
    assert nearest(got, names) == meant


def test_the_sentence_lists_few_names_and_says_where_there_are_none() -> None:
    """Of many, only the nearest."""
    assert did_you_mean("TP", ["tp", "dp"]) == "did you mean `tp`? allowed here: `dp`, `tp`"
    assert did_you_mean("x", ["tp", "dp"]) == "allowed here: `dp`, `tp`"
    assert did_you_mean("x", []) == "there is nothing that could be written here; leave it out"
    many = [f"name_{number:02}" for number in range(17)]
    assert did_you_mean("NAME_03", many) == "did you mean `name_03`?"
    assert did_you_mean("x", many) == "none of the `17` names allowed here is near"
