"""Reads the file at a path, or says what was meant by a path or a name of which there is none."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from stagemesh.config.document import Document, Findings, Source, read_yaml
from stagemesh.config.opened import OpenedFile, open_file
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import nearest

_LOOKED_AT: Final = 2_000
"""Names of a folder that are compared."""


def is_name(text: str) -> bool:
    """Whether a text is a name alone, without any folder."""
    return bool(text) and Path(text).name == text


def is_file(path: Path) -> bool:
    """Whether there is a file, or something that is read like one; a folder is none."""
    return os.path.exists(path) and not is_folder(path)  # noqa: PTH110  never raises


def is_folder(path: Path) -> bool:
    """Whether there is a folder; whatever the path is, nothing is raised."""
    return os.path.isdir(path)  # noqa: PTH112  never raises


def read_file(
    given: str | Path | OpenedFile, source: Source, findings: Findings
) -> Document | None:
    """Read a YAML file; where there is none, what was meant is told with it."""
    opened = given if isinstance(given, OpenedFile) else open_file(given)
    found: Findings = []
    document = read_yaml(opened, source, found)
    help_text = path_help(opened.name) if opened.is_missing else None
    findings.extend(replace(each, help=each.help or help_text) for each in found)
    return document


def near_path(path: str, *, folders: bool = False) -> str | None:
    """Return the path of what lies in the same folder under a name that is near.

    Endings say nothing: half of the files in a folder may have the same.
    """
    folder, name = os.path.split(path)
    found = _names(Path(folder), folders=folders)
    stem = nearest(Path(name).stem, {Path(each).stem for each in found})
    near = None
    if stem is not None:
        near = nearest(name, (each for each in found if Path(each).stem == stem))
    return None if near is None else os.path.join(folder, near)  # noqa: PTH118  no `./` is lost


def path_help(path: str, *, folders: bool = False) -> str:
    """Say what is wrong with a path at which there is nothing."""
    folder = os.path.dirname(path)  # noqa: PTH120  no `./` is lost
    if folder and not is_folder(Path(folder)):
        return f"the folder {quoted(folder, 60)} does not exist"
    near = near_path(path, folders=folders)
    if near is not None:
        return f"did you mean {quoted(near, 80)}?"
    what = "folder" if folders else "file"
    return f"no {what} in {quoted(folder or str(Path.cwd()), 60)} has a name near it"


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            listed = itertools.islice(entries, _LOOKED_AT)
            return [each.name for each in listed if each.is_dir() is folders]
    except OSError:
        return []
