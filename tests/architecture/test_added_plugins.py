"""A plug-in of each kind, added as files of another distribution, is as good as one of ours.

The distribution lies in `added/`. It is put on the path of a child process beside metadata that
names its entry points, as pip would leave it; nothing in stagemesh is touched.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from tests.architecture.source import ROOT
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

Run: TypeAlias = Callable[..., str]

ADDED: Final = Path(__file__).parent / "added"
HEADS: Final = {"model_type": "shadow_play", "heads": 8}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python with the distribution installed, and return what it printed."""
    site = tmp_path / "site"
    shutil.copytree(ADDED / "lantern", site / "lantern")
    metadata = site / "lantern-1.0.dist-info"
    metadata.mkdir()
    shutil.copy(ADDED / "entry_points.txt", metadata)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lantern\nVersion: 1.0\n")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps(HEADS))

    def run_python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(site),
                "COLUMNS": "100",
                "HYPOTHESIS_PROFILE": "check",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_python


def _plan(run: Run, *arguments: str) -> Mapping[str, Any]:
    plan: Mapping[str, Any] = json.loads(
        run("-m", "stagemesh", "plan", "checkpoint", "--json", *arguments)
    )
    return plan


def test_an_added_model_plans_with_its_own_engine_and_connector(run: Run) -> None:
    """The checkpoint is recognised, and the deploy file that ships with the model is read."""
    plan = _plan(run)
    assert plan["pipeline"] == "shadow_play"
    assert [stage["engine"] for stage in plan["stages"]] == ["mirror", "mirror"]
    assert [edge["connector"] for edge in plan["edges"]] == ["pocket"]
    assert plan["not_runnable"] == []


def test_an_added_model_and_engine_are_listed(run: Run) -> None:
    """Listings ask the registry as well."""
    for kind, name in (("models", "shadow_play"), ("engines", "mirror"), ("axes", "beam")):
        assert name in run("-m", "stagemesh", "list", kind, "--json")


def test_an_added_axis_changes_the_world_of_a_plan(run: Run, tmp_path: Path) -> None:
    """Its ranks multiply those of our axes, its groups are listed, and its options are kept."""
    (tmp_path / "strategy.yaml").write_text(
        "strategies:\n"
        "  caster:\n"
        "    - {axis: beam, size: 3, colour: red}\n"
        "    - {axis: tp, size: 2}\n"
    )
    stage = _plan(run, "--strategy-config", "strategy.yaml", "--devices", "8xH200")["stages"][0]
    assert stage["world_size"] == 6
    axes = {axis["axis"]: axis for axis in stage["axes"]}
    assert axes["beam"]["groups"] == [[0, 1, 2], [3, 4, 5]]
    assert axes["tp"]["groups"] == [[0, 3], [1, 4], [2, 5]]
    assert axes["beam"]["options"] == {"colour": "red"}


def test_an_added_axis_is_refused_where_it_does_not_fit(run: Run, tmp_path: Path) -> None:
    """What it declares is enforced as for any other axis."""
    (tmp_path / "strategy.yaml").write_text("strategies:\n  screen: [{axis: beam, size: 2}]\n")
    with pytest.raises(AssertionError, match="beam"):
        _plan(run, "--strategy-config", "strategy.yaml")


def test_added_plugins_change_the_schemas(run: Run, tmp_path: Path) -> None:
    """Editors are told about the axis, its options, and the connector."""
    run("-m", "stagemesh.config.jsonschema")
    written = {path.name: path.read_text() for path in (tmp_path / "schemas").iterdir()}
    ours = {path.name: path.read_text() for path in (ROOT / "schemas").iterdir()}
    assert written.keys() == ours.keys()
    strategy = next(text for name, text in written.items() if name.startswith("strategy"))
    assert '"beam"' in strategy
    assert '"colour"' in strategy
    assert not any("beam" in text for text in ours.values())


def test_an_added_command_runs(run: Run) -> None:
    """It appears in the help and does its work."""
    assert "a command of a third party" in run("-m", "stagemesh", "--help")
    assert run("-m", "stagemesh", "greet", "world") == "hello world\n"


def test_an_added_plugin_that_cannot_be_loaded_is_named(run: Run, tmp_path: Path) -> None:
    """A broken distribution stops the command and says which plug-in it is, and why."""
    (tmp_path / "site" / "lantern" / "beam.py").write_text("raise OSError('the wick is wet')\n")
    with pytest.raises(AssertionError, match=r"plug-in `beam` \(lantern\.beam\).*the wick is wet"):
        _plan(run)


def test_an_added_connector_and_engine_pass_conformance(run: Run, tmp_path: Path) -> None:
    """The suites of `stagemesh.testing` run over them from the third party's own tests."""
    shutil.copy(ADDED / "conformance.py", tmp_path / "test_lantern.py")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)  # the profiles of property tests
    report = run("-m", "pytest", "-v", "test_lantern.py")
    for passed in ("TestPocket::test_what_is_put_is_got", "TestMirror::test_a_request_ends"):
        assert passed in report


def test_a_request_runs_through_the_added_plugins(run: Run) -> None:
    """Two processes of the added engine, the added connector between them, one answer."""
    answer = run(
        "-c",
        "from stagemesh import Omni\n"
        "with Omni('checkpoint') as omni:\n"
        "    [result] = omni.generate(['a light behind a hand'])\n"
        "print(result.text)\n",
    )
    assert answer == "a light behind a hand\n"
