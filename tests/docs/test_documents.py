"""Documents stay short, lead somewhere, and agree with what the tools enforce."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from stagemesh.spec.patterns import Policy
from tests.architecture.source import ROOT
from tests.waiting import WAIT_S

MAX_LINES: Final = {"README.md": 150, "AGENTS.md": 60, "docs/architecture.md": 200}
_LINK: Final = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(?:#[^)]*)?\)")
_ROOMS: Final = re.compile(r"<!-- rooms[^\n]*-->\n```text\n(.*?)```", flags=re.DOTALL)


def documents() -> list[Path]:
    """Every Markdown file of the project."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def drawn_rooms(text: str) -> list[str]:
    """Rows of the room diagram, from the top down, as the import contract writes them."""
    diagram = _ROOMS.search(text)
    assert diagram is not None, "no room diagram"
    return [re.split(r"\s{2,}", line)[0] for line in diagram[1].splitlines()]


def dead_links(path: Path) -> Iterator[str]:
    """Relative links of a document that lead nowhere."""
    for link in _LINK.findall(path.read_text(encoding="utf-8")):
        if not (path.parent / link).exists():
            yield link


def contract_layers(pyproject: Path) -> Sequence[str]:
    """Rows of the import contract."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers: list[str] = next(
        contract["layers"] for contract in contracts["contracts"] if contract["id"] == "rooms"
    )
    return layers


def test_the_room_diagram_is_the_import_contract() -> None:
    """What the document draws is what import-linter enforces, row by row."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert drawn_rooms(text) == contract_layers(ROOT / "pyproject.toml")


def test_a_room_that_is_drawn_wrongly_is_seen() -> None:
    """The reading of the diagram keeps order, and rows with two rooms."""
    text = "<!-- rooms -->\n```text\na | b   two rooms\nc       one\n```\n"
    assert drawn_rooms(text) == ["a | b", "c"]


@pytest.mark.parametrize(("name", "limit"), sorted(MAX_LINES.items()))
def test_a_document_is_short_enough_to_be_read(name: str, limit: int) -> None:
    """README, AGENTS and the architecture keep to their limits."""
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= limit


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_between_documents_leads_somewhere(path: Path) -> None:
    """No relative link is dead."""
    assert list(dead_links(path)) == []


def test_a_dead_link_is_caught(tmp_path: Path) -> None:
    """A missing file is found; anchors and addresses are not looked up."""
    page = tmp_path / "page.md"
    page.write_text("[a](gone.md#part) [b](page.md#x) [c](https://example.org) [d](#here)\n")
    assert list(dead_links(page)) == ["gone.md"]


def test_the_news_of_the_next_release_can_be_built() -> None:
    """Every fragment in `changelog.d/` is of a known kind and is rendered."""
    done = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    fragments = [path.name for path in (ROOT / "changelog.d").glob("*.md")]
    assert fragments
    for name in fragments:
        assert f"(#{name.partition('.')[0]})" in done.stdout


def test_every_policy_is_explained() -> None:
    """By what it decides, among equals, and when a replica goes."""
    text = (ROOT / "docs" / "guide" / "serve.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.+)\|(.+)\|(.+)\|$", text, flags=re.MULTILINE)
    assert [name for name, *_ in rows] == [policy.value for policy in Policy]
    assert all(cell.strip() for _, *cells in rows for cell in cells)
