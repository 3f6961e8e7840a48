"""Plug-ins are found by file and by entry point, and a broken one is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stagemesh.spec.axis import Axis
from stagemesh.spec.registry import PluginError, PluginKind, _modules

GOOD = """
from dataclasses import replace
from stagemesh.axes.tp import AXIS as TP

AXIS = replace(TP, name="{name}")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `planted_axes` on the import path, of which nothing is remembered afterwards."""
    package = tmp_path / "planted_axes"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    _modules.cache_clear()
    yield package
    _modules.cache_clear()


KIND: PluginKind[Axis] = PluginKind(
    package="planted_axes", attribute="AXIS", declares="stagemesh.spec.axis:Axis"
)


def plant(folder: Path, name: str, text: str) -> None:
    """Write one plug-in."""
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "planted_axes"]:
        monkeypatch.delitem(sys.modules, name)


def test_every_file_without_underscore_is_a_plug_in(folder: Path) -> None:
    """Its name is the plug-in's name."""
    plant(folder, "b", GOOD.format(name="b"))
    plant(folder, "a", GOOD.format(name="a"))
    plant(folder, "_c", "raise ValueError")
    assert [axis.name for axis in KIND.declarations()] == ["a", "b"]


def test_listing_names_imports_nothing(folder: Path) -> None:
    """A broken plug-in is listed all the same."""
    plant(folder, "broken", "raise ValueError('no')")
    assert dict(KIND.modules()) == {"broken": "planted_axes.broken"}
    with pytest.raises(PluginError, match=r"`broken` \(planted_axes.broken\) failed to load"):
        KIND.load("broken")


def test_a_plug_in_without_declaration_is_named(folder: Path) -> None:
    """So is one whose export is something else."""
    plant(folder, "empty", "AXIS = 1\n")
    with pytest.raises(PluginError, match=r"exports no `AXIS` of `stagemesh\.spec\.axis:Axis`"):
        KIND.load("empty")


def test_an_unknown_name_is_a_key_error(folder: Path) -> None:
    """The caller knows what it asked for."""
    assert folder.is_dir()
    with pytest.raises(KeyError):
        KIND.load("missing")


def test_other_distributions_add_plug_ins_by_entry_point(folder: Path) -> None:
    """But none under a name that exists already."""
    plant(folder, "mine", GOOD.format(name="mine"))
    metadata = folder.parent / "theirs-1.0.dist-info"
    metadata.mkdir()
    points = metadata / "entry_points.txt"
    points.write_text("[planted_axes]\ntheirs = stagemesh.axes.dp\n", encoding="utf-8")
    assert sorted(KIND.modules()) == ["mine", "theirs"]
    assert KIND.load("theirs")[0].name == "dp"


def test_two_plug_ins_of_one_name_are_refused(folder: Path) -> None:
    """Neither of them is silently dropped."""
    plant(folder, "mine", GOOD.format(name="mine"))
    metadata = folder.parent / "theirs-1.0.dist-info"
    metadata.mkdir()
    points = metadata / "entry_points.txt"
    points.write_text("[planted_axes]\nmine = elsewhere\n", encoding="utf-8")
    with pytest.raises(PluginError, match=r"exists twice: `planted_axes\.mine`, `elsewhere`"):
        KIND.modules()
