"""What was meant by a path or a name of which there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagemesh.config.lookup import near_path, path_help
from tests.config.deploying import Show


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    for name in ("strategy.yaml", "strategy.json", "other.yaml"):
        (tmp_path / "files" / name).write_text("{}", encoding="utf-8")
    (tmp_path / "files" / "models").mkdir()


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("files/strategi.yaml", "files/strategy.yaml"),
        ("files/Strategy.json", "files/strategy.json"),
        ("files/strategy.yml", "files/strategy.yaml"),
        ("files/deploy.yaml", None),
        ("files/model", None),
        ("absent/strategy.yaml", None),
    ],
)
def test_a_near_file_of_the_same_folder_is_meant(path: str, near: str | None) -> None:
    """By its name without the ending, which half of the files may share."""
    assert near_path(path) == near


def test_a_path_is_told_by_its_folder() -> None:
    """The folder that is not there, the near name in it, or that there is none."""
    assert path_help("absent/x.yaml") == "the folder `absent` does not exist"
    assert path_help("files/othr.yaml") == "did you mean `files/other.yaml`?"
    assert path_help("files/x.yaml") == "no file in `files` has a name near it"
    assert path_help("x.yaml").startswith("no file in `")
    assert path_help("files/model", folders=True) == "did you mean `files/models`?"
    assert path_help("files/x", folders=True) == "no folder in `files` has a name near it"


def help_for(show: Show, **inputs: object) -> str | None:
    """What is told about the one thing that is wrong."""
    [found] = show.load(**inputs).diagnostics  # type: ignore[arg-type]
    return found.help


def test_names_are_told_names_and_paths_are_told_paths(show: Show) -> None:
    """For a deploy file, a strategy file and the file below another."""
    show.write(
        {"show_m.yaml": "{}", "quartz.yaml": "{}", "top.yaml": "base_config: files/othr.yaml"}
    )
    assert help_for(show, deploy="files/othr.yaml") == "did you mean `files/other.yaml`?"
    assert help_for(show, deploy="nowhere/show.yaml") == "the folder `nowhere` does not exist"
    beside = "did you mean the file `show_m.yaml`?"
    told = help_for(show, deploy="shov_m.yaml")
    assert told is not None
    assert told.startswith(f"{beside} of the files that ship")
    near = "did you mean the file `quartz.yaml`?"
    assert help_for(show, deploy="quarz.yaml") == near
    told = help_for(show, deploy="top.yaml")
    assert told is not None
    assert told.endswith("; did you mean `" + str(Path("files/other.yaml")) + "`?")
    strategy = help_for(show, deploy={}, strategy_config="shov_m.yaml")
    assert strategy == "did you mean `show_m.yaml`?"


def test_a_folder_of_the_name_is_no_file(show: Show) -> None:
    """The name of a file that ships means that file, wherever a folder is called so."""
    for name in ("show", "show.yaml"):
        (show.folder / name).mkdir()
        show.write({"top.yaml": f"base_config: {name}"})
        for given in ("top.yaml", name):
            loaded = show.load(given)
            assert loaded.diagnostics == ()
            assert "show.yaml" in [each.source for each in loaded.documents]
    show.write({"top.yaml": "base_config: files"})
    [found] = show.load("top.yaml").diagnostics
    assert (found.code, found.message) == ("CF016", "base file `files` is a folder")
