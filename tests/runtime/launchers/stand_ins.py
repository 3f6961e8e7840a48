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

MPS_CONTROL: Final = """
import os, signal, subprocess, sys, time
from pathlib import Path

own = Path(__file__)
ways = own.with_name("mps.ways")
way = ways.read_text() if ways.exists() else ""
pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])

def daemon():
    if way == "refuse":
        sys.exit("no GPU here")
    server = subprocess.Popen(["/bin/sleep", "600"])
    with own.with_name("mps.daemons").open("a") as daemons:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        daemons.write(f"{os.getppid()} {os.getpid()} {server.pid} {seen} {pipe}\\n")
    (pipe / "control.new").write_text(f"{os.getpid()} {server.pid}")
    (pipe / "control.new").rename(pipe / "control")
    if (log := os.environ.get("CUDA_MPS_LOG_DIRECTORY")) is not None:
        (Path(log) / "control.log").write_text("it has begun")
    while True:
        signal.pause()

def clients():
    mark = f"CUDA_MPS_PIPE_DIRECTORY={pipe}".encode()
    for each in Path("/proc").iterdir():
        try:
            is_stage = b"stage_main" in (each / "cmdline").read_bytes()
            if is_stage and mark in (each / "environ").read_bytes().split(b"\\0"):
                yield each.name
        except OSError:
            pass

def answer(question):
    is_first = question == "get_server_list"
    if is_first and way == "hang":
        with own.with_name("mps.questions").open("a") as questions:
            questions.write(f"{os.getpid()}\\n")
        time.sleep(600)
    try:
        number, server = map(int, (pipe / "control").read_text().split())
        os.kill(number, 0)
    except OSError:
        sys.exit("Cannot find MPS control daemon process")
    if is_first and way == "deaf":
        sys.exit("Failed to connect")
    if is_first:
        print(server)
    elif question == f"get_client_list {server}":
        print(*([] if way == "unattached" else clients()), sep="\\n")
    elif question.startswith("quit -t ") and way != "stubborn":
        os.kill(number, signal.SIGTERM)
        os.kill(server, signal.SIGTERM)

if sys.argv[1:] == ["-f"]:
    daemon()
for line in sys.stdin:
    answer(line.strip())
"""


def install(folder: Path, name: str, program: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program of that name first on the search path; return where it is."""
    path = folder / name
    path.write_text(f"#!{sys.executable} -IS\n{program}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    return path
