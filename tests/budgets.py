"""Budgets of CPU time: stated for one machine, held on every other.

A slower machine takes longer for everything. A budget that is not met as stated is therefore
scaled by what a yardstick takes on the machine at hand, started in turns with what is measured: a
bare interpreter that imports a fixed set of modules, as a cold start of the program does. A quick
machine changes no budget.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

YARDSTICK: Final = (
    "import argparse, ast, asyncio, calendar, configparser, csv, ctypes, dataclasses, decimal, "
    "difflib, doctest, email.message, fractions, http.client, inspect, json, logging, pathlib, "
    "shutil, sqlite3, statistics, tarfile, tokenize, typing, unittest, urllib.request, "
    "xml.dom.minidom, zipfile"
)
YARDSTICK_S: Final = 0.105
"""CPU time of the yardstick where the budgets hold as stated: the best of sixty starts of Python
3.11.7 on an AMD EPYC (Zen 4) of 2.6 GHz."""
TRIES: Final = 20
"""Tries until one stays within a budget: other work on the machine only ever adds."""
ENOUGH: Final = 5
"""Tries after which the best start of the yardstick tells how slow the machine is."""


def clean(cache: Path) -> dict[str, str]:
    """The environment of an installed program: byte code is kept, nothing measures along."""
    dropped = ("COVERAGE", "COV_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONPYCACHEPREFIX": str(cache)}


def cpu_seconds(arguments: Sequence[str], environ: Mapping[str, str]) -> float:
    """Run Python once and return the CPU time of the whole process, its start included."""
    child = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=dict(environ)
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime


def within(
    budget: float, measure: Callable[[], float], environ: Mapping[str, str], tries: int = TRIES
) -> bool:
    """Whether what is measured stays within a budget, or within that of a machine as slow as this.

    The first start of each of the two writes byte code and counts for nothing.
    """
    yardstick = ["-c", YARDSTICK]
    measure()
    taken: list[float] = []
    yardsticks: list[float] = []
    for tried in range(1, tries + 1):
        taken.append(measure())
        if taken[-1] <= budget:
            return True
        if not yardsticks:
            cpu_seconds(yardstick, environ)
        yardsticks.append(cpu_seconds(yardstick, environ))
        scaled = budget * max(1.0, min(yardsticks) / YARDSTICK_S)
        if tried >= min(ENOUGH, tries) and min(taken) <= scaled:
            return True
    return False
