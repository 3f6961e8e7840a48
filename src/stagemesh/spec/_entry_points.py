"""Entry points of installed distributions, read straight from their metadata.

The standard library tells the same, but importing it costs more than all of `--help` may take.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

Groups: TypeAlias = Mapping[str, tuple[tuple[str, str], ...]]
"""Names and values of entry points by group."""


def entry_points(group: str) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a group, in the order of the import path."""
    return _scan(tuple(sys.path)).get(group, ())


@functools.cache
def _scan(folders: tuple[str, ...]) -> Groups:
    """Read every distribution once; one found earlier on the path hides its later namesakes."""
    found: dict[str, list[tuple[str, str]]] = {}
    seen: set[str] = set()
    for folder in folders:
        for distribution, file in sorted(_metadata(folder)):
            if distribution not in seen:
                seen.add(distribution)
                _read(file, found)
    return {group: tuple(points) for group, points in found.items()}


def _metadata(folder: str) -> Iterator[tuple[str, Path]]:
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in entries]
    except OSError:  # the import path may name what does not exist, or an archive
        return
    for name in names:
        stem, _, kind = name.rpartition(".")
        if kind in {"dist-info", "egg-info"}:
            distribution = stem.partition("-")[0].lower().replace(".", "_")
            yield distribution, Path(folder, name, "entry_points.txt")


def _read(file: Path, found: dict[str, list[tuple[str, str]]]) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        return
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.setdefault(group, []).append((name.strip(), value.strip()))
