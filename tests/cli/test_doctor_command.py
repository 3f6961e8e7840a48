"""`stagemesh doctor`: each check by itself, then the command around them."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

import stagemesh.cli._doctor
from stagemesh.cli import _checkup_machine as machine
from stagemesh.cli import _checkup_software as software
from stagemesh.cli._checkup import Check, State
from stagemesh.cli._main import main
from stagemesh.config.host import Host, read_host
from stagemesh.spec.registry import AXES, PluginError, PluginKind
from tests.cli.screens import check_screen, screen

OK, WARNING, FAILURE = State
MADE_UP: Final = (
    Check(name="python", state=OK, message="3.11.9 (wanted: >=3.11)"),
    Check(
        name="torch",
        state=WARNING,
        message="not installed, and running models needs <2.14,>=2.13",
        help="pip install 'stagemesh[run]'",
    ),
    Check(
        name="models",
        state=FAILURE,
        message="plug-in `lantern` (lantern.pipeline) failed to load: ImportError('no light')",
        help="repair or uninstall the package that brings it",
    ),
)


def told(check: Check) -> tuple[State, str]:
    """How a check ended, and what it found."""
    return check.state, check.message


# --- software ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "wanted", "is_met"),
    [
        ("2.13.0+cpu", "<2.14,>=2.13", True),
        ("2.14", "<2.14,>=2.13", False),
        ("2.14.0.dev1", "<2.14", False),
        ("2", ">=2.0", True),
        ("2.0.1", ">2", True),
        ("2.0", ">2", False),
        ("1.9", "<=1.9", True),
        ("1.10", "!=1.10", False),
        ("2.4.0", "==2.4.0", True),
        ("5.19", "~=5.16", True),
        ("6.0", "~=5.16", False),
        ("unknown", ">=1", False),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(
    version: str,
    wanted: str,
    is_met: bool,  # noqa: FBT001  a column of the table
) -> None:
    """Every bound has to be met; what follows the numbers does not count."""
    assert software.is_within(version, wanted) is is_met


def test_an_old_python_is_a_failure() -> None:
    """Nothing else can be trusted then."""
    assert told(software.python_check(">=3.11", (3, 10, 4))) == (FAILURE, "3.10.4 is not >=3.11")
    assert software.python_check(">=3.11", (3, 13, 0)).state is OK


@pytest.mark.parametrize(
    ("requirement", "version", "state"),
    [
        ("PyYAML>=6.0", "6.0.2", OK),
        ("PyYAML>=6.0", None, FAILURE),
        ("PyYAML>=6.0", "5.4", WARNING),
        ('torch<2.14,>=2.13; extra == "run"', None, WARNING),
        ('torch<2.14,>=2.13; extra == "run"', "2.10", WARNING),
        ('torch<2.14,>=2.13; extra == "run"', "2.13.1", OK),
        ('ray>=2.50; extra == "ray"', None, OK),
        ('ray>=2.50; extra == "ray"', "2.49", WARNING),
    ],
)
def test_a_package_is_checked_by_its_version(
    requirement: str, version: str | None, state: State
) -> None:
    """What only running needs is a warning, with the command that installs it."""
    [check] = software.package_checks(requirement, lambda _name: version)
    assert check.state is state
    extra = f"[{requirement[-4:-1]}]" if "extra" in requirement else ""
    assert check.help == (None if state is OK else f"pip install 'stagemesh{extra}'")


def test_packages_of_demos_and_development_do_not_matter() -> None:
    """Nobody who runs models needs them."""
    for extra in ("dev", "ray"):
        assert list(software.package_checks(f'stagemesh[run]; extra == "{extra}"')) == []
    [check] = software.package_checks("no-such-distribution>=1")
    assert check.message == "not installed, and stagemesh needs >=1"


def kind(modules: Mapping[str, str], broken: str | None = None) -> PluginKind[object]:
    """A kind of plug-in, one of which cannot be loaded."""

    class Kind:
        def modules(self) -> Mapping[str, str]:
            if not modules:
                message = "plug-in `tp` of `stagemesh.axes` exists twice"
                raise PluginError(message)
            return modules

        def load(self, name: str) -> tuple[object, ...]:
            if name == broken:
                message = f"plug-in `{name}` failed to load"
                raise PluginError(message)
            return ()

    return Kind()  # type: ignore[return-value]


def test_a_broken_plug_in_is_named_and_the_others_count() -> None:
    """Each by itself."""
    found = list(software.plugin_checks("axes", kind({"b": "", "a": "", "c": ""}, broken="b")))
    assert list(map(told, found)) == [
        (FAILURE, "plug-in `b` failed to load"),
        (OK, "2: a, c"),
    ]
    assert [told(each) for each in software.plugin_checks("axes", kind({"b": ""}, broken="b"))][
        1
    ] == (OK, "0: none")


def test_a_plug_in_that_is_there_twice_is_a_failure() -> None:
    """None of the kind can be used."""
    [check] = software.plugin_checks("axes", kind({}))
    assert told(check) == (FAILURE, "plug-in `tp` of `stagemesh.axes` exists twice")


def test_installed_plug_ins_are_found() -> None:
    """Those that ship."""
    [check] = software.plugin_checks("axes", AXES)
    assert check.message.startswith(f"{len(AXES.modules())}: cfg, cp, ")


def test_variables_are_shown_and_wrong_ones_are_failures() -> None:
    """Unknown and malformed ones stop every command."""
    wrong = {"STAGEMESH_CASHE": "/c", "STAGEMESH_CACHE": "c", "OMP_NUM_THREADS": "1"}
    states = [told(each)[0] for each in software.environment_checks(wrong)]
    assert states == [FAILURE, FAILURE, OK]
    *_, last = software.environment_checks(wrong)
    assert last.message == "STAGEMESH_CACHE=c, OMP_NUM_THREADS=1"
    [alone] = software.environment_checks({})
    assert alone.message == "no variable is set that matters here"


def test_the_cache_says_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or that it is not there yet, or cannot be used; a malformed place is told elsewhere."""
    folder = tmp_path / "cache"

    def checks(place: str) -> list[tuple[State, str]]:
        return [told(each) for each in software.cache_checks({"STAGEMESH_CACHE": place})]

    assert checks(str(folder)) == [(OK, f"`{folder}` does not exist yet")]
    folder.mkdir()
    assert checks(str(folder)) == [(OK, f"`{folder}` has no checkpoint")]
    for name in ("voice_chat", ".partial"):
        (folder / name).mkdir()
    assert checks(str(folder)) == [(OK, f"`{folder}` has voice_chat")]
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    assert checks(str(folder)) == [(WARNING, f"`{folder}` cannot be read and written")]
    assert checks("relative") == []


# --- machine -------------------------------------------------------------------------------------


def gpus(root: Path, count: int) -> Path:
    """A file system that knows GPUs."""
    for number in range(count):
        (root / "proc" / "driver" / "nvidia" / "gpus" / str(number)).mkdir(parents=True)
    return root


def test_devices_are_counted(tmp_path: Path) -> None:
    """Those that are visible, and a warning when all are hidden."""
    root = gpus(tmp_path, 2)

    def check(**environ: str) -> tuple[State, str]:
        return told(machine.device_check(read_host(root, environ), root, environ))

    assert check() == (OK, "2 cuda")
    assert check(CUDA_VISIBLE_DEVICES="1") == (OK, "1 cuda (CUDA_VISIBLE_DEVICES=1)")
    assert check(CUDA_VISIBLE_DEVICES="") == (WARNING, "CUDA_VISIBLE_DEVICES= hides every GPU")
    empty = tmp_path / "other"
    host = Host(kind="cpu", count=None, memory_bytes=2**30)
    assert told(machine.device_check(host, empty, {})) == (OK, "cpu with 1 GiB; no GPU")
    host = Host(kind="cpu", count=None, memory_bytes=None)
    hidden = {"CUDA_VISIBLE_DEVICES": "0"}
    assert told(machine.device_check(host, empty, hidden)) == (OK, "cpu; no GPU")


def test_memory_is_what_is_free(tmp_path: Path) -> None:
    """Too little is a warning, as is not to know."""
    file = tmp_path / "meminfo"
    assert machine.memory_check(file).state is WARNING
    for text, expected in (
        ("MemTotal: 8 kB\nMemAvailable: 4194304 kB\n", (OK, "4 GiB free")),
        ("MemAvailable: 1048576 kB\n", (WARNING, "1 GiB free")),
        ("MemTotal: 8 kB\n", (WARNING, f"`{file}` does not tell")),
    ):
        file.write_text(text, encoding="ascii")
        assert told(machine.memory_check(file)) == expected


def test_shared_memory_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers often have little."""
    assert machine.shm_check(tmp_path / "nowhere").state is WARNING

    class Stats:
        f_frsize = 4096
        f_blocks = 2**14

    monkeypatch.setattr(os, "statvfs", lambda _folder: Stats)
    check = machine.shm_check(tmp_path)
    assert told(check) == (
        WARNING,
        f"`{tmp_path}` has 64 MiB; libraries of several GPUs need more",
    )
    Stats.f_blocks = 2**20
    assert told(machine.shm_check(tmp_path)) == (OK, f"`{tmp_path}` has 4 GiB")


def refusing(*_args: object) -> int:
    """What a sandbox does."""
    raise PermissionError(1, "Operation not permitted")


def test_a_sandbox_that_forbids_too_much_is_a_failure() -> None:
    """Memory without a name and ports are needed by every run."""
    assert machine.memfd_check(refusing).state is FAILURE
    assert machine.memfd_check(os.memfd_create).state is OK
    listen: Callable[[tuple[str, int]], socket.socket] = refusing  # type: ignore[assignment]
    assert told(machine.ports_check(listen)) == (
        FAILURE,
        "no port of 127.0.0.1 can be opened: operation not permitted",
    )
    assert machine.ports_check(socket.create_server).state is OK


@pytest.mark.parametrize(
    ("soft", "hard", "state", "message"),
    [
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, OK, "unlimited for one process"),
        (8192, 8192, OK, "8192 for one process"),
        (
            1024,
            resource.RLIM_INFINITY,
            OK,
            "1024 for one process; servers and stages raise it to 1048576",
        ),
        (
            1024,
            2048,
            WARNING,
            "1024 for one process; servers and stages raise it to 2048",
        ),
        (1024, 1024, WARNING, "1024 for one process"),
    ],
)
def test_open_files_are_limited(soft: int, hard: int, state: State, message: str) -> None:
    """By the hard limit, which servers and stages reach by themselves."""
    check = machine.files_check(soft, hard)
    assert (check.state, check.message) == (state, message)
    assert (check.help is not None and "hard limit" in check.help) == (state is WARNING)


def test_a_program_that_few_need_is_never_a_warning() -> None:
    """It is said who needs it."""
    assert told(machine.program_check("numactl", "`numa_bind`", "/bin/numactl")) == (
        OK,
        "`/bin/numactl`",
    )
    assert machine.program_check("numactl", "`numa_bind`", None).message == (
        "not installed; only `numa_bind` needs it"
    )


def test_everything_is_checked() -> None:
    """Each thing by its own name, on whatever machine this is."""
    programs = ["numactl", "nvidia-cuda-mps-control"]
    names = [check.name for check in machine.machine_checks()]
    assert names == [
        "devices",
        "memory",
        "shared memory",
        "memfd",
        "open files",
        "ports",
        *programs,
    ]
    installed = {check.name for check in software.software_checks()}
    kinds = {"axes", "commands", "connectors", "engines", "models"}
    assert {"python", "PyYAML", "torch", "environment", "cache", *kinds} <= installed


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stagemesh.cli._doctor, "software_checks", lambda: MADE_UP[:1])
    monkeypatch.setattr(stagemesh.cli._doctor, "machine_checks", lambda: MADE_UP[1:])


@pytest.mark.usefixtures("_made_up")
@pytest.mark.parametrize("width", [120, 60])
def test_every_check_is_a_line_with_its_fix(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each begins with how it ended."""
    monkeypatch.setenv("COLUMNS", str(width))
    check_screen(f"doctor-{width}", screen(["doctor"], capsys))


@pytest.mark.usefixtures("_made_up")
def test_data_has_every_check_and_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """For a report of a problem."""
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"ok": 1, "warning": 1, "failure": 1}
    assert [set(check) for check in found["checks"]] == [{"name", "state", "message", "help"}] * 3


@pytest.mark.parametrize(
    ("checks", "arguments", "code"),
    [
        (MADE_UP[:1], ["--strict"], 0),
        (MADE_UP[:2], [], 0),
        (MADE_UP[:2], ["--strict"], 1),
        (MADE_UP, [], 1),
    ],
)
def test_warnings_fail_only_where_that_is_asked_for(
    checks: tuple[Check, ...],
    arguments: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Failures always do."""
    monkeypatch.setattr(stagemesh.cli._doctor, "software_checks", lambda: checks)
    monkeypatch.setattr(stagemesh.cli._doctor, "machine_checks", list)
    assert main(["doctor", *arguments]) == code


def test_the_real_checks_import_nothing_heavy() -> None:
    """Versions stand in metadata; the very process that checked is asked."""
    program = (
        "import sys\n"
        "from stagemesh.cli._main import main\n"
        "main(['doctor'])\n"
        "sys.exit(', '.join({'torch', 'transformers', 'numpy'} & set(sys.modules)) or None)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=240, text=True
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert {line.split()[0] for line in lines if line[:1].strip()} <= {
        "ok",
        "warning",
        "failure",
        "next:",
        *(line.split()[0] for line in lines[-2:]),
    }
    for name in ("python", "PyYAML", "axes", "environment", "devices", "memfd", "numactl"):
        assert any(line.split()[1:2] == [name] for line in lines), name
