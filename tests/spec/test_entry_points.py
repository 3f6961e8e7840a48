"""Entry points are read from the metadata of installed distributions."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from stagemesh.spec._entry_points import entry_points

TEXT = """\
# a comment
[stagemesh.axes]
mine = my_package.axes.mine
other=my_package.other

; another
[console_scripts]
tool = my_package:main
nonsense
"""


def install(folder: Path, name: str, text: str | None) -> None:
    """Lay a distribution's metadata into a folder."""
    metadata = folder / name
    metadata.mkdir(parents=True)
    if text is not None:
        (metadata / "entry_points.txt").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["my_package-1.0.dist-info", "my_package.egg-info"])
def test_a_distribution_on_the_path_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed either way; one without entry points adds none."""
    install(tmp_path, name, TEXT)
    install(tmp_path, "bare-1.0.dist-info", None)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert entry_points("stagemesh.axes") == (
        ("mine", "my_package.axes.mine"),
        ("other", "my_package.other"),
    )
    assert entry_points("stagemesh.engines") == ()


def test_the_first_distribution_of_a_name_hides_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an import would."""
    install(tmp_path / "a", "my_package-1.0.dist-info", "[g]\nx = a\n")
    install(tmp_path / "b", "My.Package-2.0.dist-info", "[g]\nx = b\n")
    monkeypatch.setattr("sys.path", [str(tmp_path / "a"), str(tmp_path / "b"), "/missing"])
    assert entry_points("g") == (("x", "a"),)


def test_it_finds_what_the_standard_library_finds() -> None:
    """In the environment of this very test."""
    expected = {
        (point.name, point.value)
        for point in importlib.metadata.entry_points(group="console_scripts")
    }
    assert expected
    assert set(entry_points("console_scripts")) == expected
