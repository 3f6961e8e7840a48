"""Every diagnostic code has a page, and the examples of the pages do what the pages say."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import pytest

import stagemesh.plan.pages
from stagemesh.plan.pages import codes, has_page, page_of, page_text
from tests.architecture.source import PACKAGE, read_tree
from tests.architecture.test_diagnostic_codes import codes_of
from tests.plan.page_examples import Example, example_of, fixed, run

_NOT_RUN: Final = """
AX008 AX009 AX023 AX053
CF018 CF019 CF038 CF065 CF090
CL005 CL006 CL016 CL017 CL030 CL031 CL032
MD013 MD014 MD015 MD016 MD017 MD018 MD019 MD021 MD022 MD023 MD024 MD025 MD037 MD027 MD034
MD040 MD041 MD042 MD043 MD044 MD045 MD046 MD047 MD049
MD050 MD051 MD052 MD053 MD054 MD055 MD056 MD057 MD058
PL003 PL018 PL025 PL042 PL043 PL044 PL045 PL046 PL047 PL048 PL073 PL106
PL114
RT001 RT002 RT004 RT005 RT006 RT007 RT008 RT010 RT011 RT012 RT013 RT014 RT015 RT016
RT017 RT018 RT019 RT020 RT021 RT022 RT023 RT024 RT025 RT026 RT030 RT040 RT041
RT050 RT051 RT052 RT060 RT061 RT062 RT063 RT070 RT071 RT072 RT073
SV001 SV002 SV003 SV004 SV005 SV006
"""
"""Those that need Python, another host, a changed file, a plug-in or a running model, that come
with another code, or that take more than a page can show."""
PROSE: Final = frozenset(_NOT_RUN.split())
"""Pages whose example is no command that a test can run."""
SEVERAL: Final = frozenset({"RT003"})
"""Pages that say why their code comes several times: one for each reason."""
RUN: Final = [code for code in codes() if code not in PROSE]


@cache
def used() -> set[str]:
    """Every code that the source gives out."""
    return codes_of(read_tree(PACKAGE))


def test_every_code_has_a_page() -> None:
    """Whoever gives out a code explains it."""
    assert [code for code in sorted(used()) if not has_page(code)] == []


def test_no_page_is_orphaned() -> None:
    """A code that nobody gives out any more takes its page along."""
    assert set(codes()) <= used()


@pytest.mark.parametrize("code", codes())
def test_every_page_has_the_form(code: str) -> None:
    """A title that is no sentence, and three parts with text."""
    page = page_of(code)
    assert page.title == page.title.strip(" .")
    assert all((page.why, page.example, page.fix))
    text = (stagemesh.plan.pages.FOLDER / f"{code}.md").read_text(encoding="utf-8")
    outside = text.split("```")[::2]
    assert max(len(line) for part in outside for line in part.splitlines()) <= 100


@pytest.mark.no_cover
@pytest.mark.parametrize("code", RUN)
def test_an_example_gives_its_code_once_and_no_other(code: str, tmp_path: Path) -> None:
    """Once: it shows one cause."""
    outcome = run(example_of(page_of(code).example), tmp_path / "example")
    told = set(outcome.codes) if code in SEVERAL else [*outcome.codes]
    assert told == ({code} if code in SEVERAL else [code]), outcome.shown


@pytest.mark.no_cover
@pytest.mark.parametrize("code", RUN)
def test_a_fixed_example_gives_no_code(code: str, tmp_path: Path) -> None:
    """Neither an error nor a warning."""
    page = page_of(code)
    outcome = run(fixed(example_of(page.example), example_of(page.fix)), tmp_path / "fixed")
    assert outcome.codes == (), outcome.shown
    assert outcome.exit_code in (0, 1)  # `diff` leaves 1 where something differs


def test_an_example_that_is_prose_has_no_command() -> None:
    """So that none is forgotten in the list above."""
    silent = {code for code in codes() if example_of(page_of(code).example).command is None}
    assert silent == PROSE


def test_an_example_with_several_commands_or_without_a_prompt_is_refused() -> None:
    """A page that could not be run would prove nothing."""
    for fences in ("```console\nstagemesh plan\n```", "```console\n$ a\n```\n```console\n$ b\n```"):
        with pytest.raises(AssertionError):
            example_of(fences)


def test_a_page_that_gives_another_code_would_be_seen(tmp_path: Path) -> None:
    """The harness reads what is told, not what should be."""
    wrong = Example(
        files={"deploy.yaml": "stages: 1\n"},
        command="STAGEMESH_CACHE=/c stagemesh plan voice_chat --deploy-config deploy.yaml",
    )
    assert run(wrong, tmp_path / "wrong").codes == ("CF012",)


def test_a_page_fits_the_screen() -> None:
    """Sentences are broken anew; files and commands are set in and stay as they are."""
    text = page_text(page_of("CF011"), 50)
    assert text.startswith(
        "CF011: a key is missing\n\nThe mapping means nothing without the key: an axis"
    )
    assert "    # strategy.yaml\n    strategies:\n      thinker:\n" in text
    prose = [line for line in text.splitlines() if not line.startswith("    ")]
    assert max(map(len, prose)) <= 50


def test_the_sections_of_a_page_follow_each_other_with_one_blank_line() -> None:
    """As Markdown has them."""
    assert "\n\n\n" not in page_text(page_of("CF011"))
