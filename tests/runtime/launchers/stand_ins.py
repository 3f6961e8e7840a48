"""Programs of a host that may not be there: stand-ins that do what matters and can be asked."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pytest

NUMACTL: Final = """
import os, sys
from pathlib import Path

def listed(text):
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found

words = sys.argv[1:]
number = next(at for at, word in enumerate(words) if not word.startswith("-"))
options, command = words[:number], words[number:]
with Path(__file__).with_name("numactl.calls").open("a") as calls:
    calls.write(f"{os.getpid()} {' '.join(options)}\\n")
for option in options:
    name, _, value = option.partition("=")
    if name == "--physcpubind":
        os.sched_setaffinity(0, listed(value))
    elif name == "--cpunodebind":
        folders = [Path(f"/sys/devices/system/node/node{node}") for node in value.split(",")]
        cpus = [listed((folder / "cpulist").read_text()) for folder in folders]
        os.sched_setaffinity(0, set().union(*cpus) & os.sched_getaffinity(0))
    elif name != "--membind":
        sys.exit(f"unknown option {option}")
os.execv(command[0], command)
"""


def install(folder: Path, name: str, program: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program of that name first on the search path; return where it is."""
    path = folder / name
    path.write_text(f"#!{sys.executable} -IS\n{program}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    return path
