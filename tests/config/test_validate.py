"""Files are checked without a checkpoint: what each is, against which stages, and how fast."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.validate import CheckedFiles, FileKind, check_files
from stagemesh.plan.save import to_json
from stagemesh.spec.diagnostic import Diagnostic
from tests.budgets import ENOUGH, clean, within
from tests.config.deploying import CATALOG, PIPELINE, Show


def shown(found: Diagnostic) -> str:
    """Show a finding as `code place`."""
    return f"{found.code} {found.origin}"


def checked(*paths: str, pipeline: str | None = None) -> CheckedFiles:
    """Check files against the pipelines of the tests."""
    return check_files(paths, pipeline, CATALOG)


def test_the_keys_of_the_root_tell_what_a_file_is(show: Show) -> None:
    """A strategy, a saved plan, a deploy file, or nothing that can be read."""
    plan = show.make({}).plan
    assert plan is not None
    show.write(
        {
            "strategy.yaml": "strategies: {}",
            "plan.json": to_json(plan),
            "edited.json": '{"checkpoint": 1, "version": 1}',
            "deploy.yaml": "version: 1",
            "bad.yaml": "[",
        }
    )
    files = checked("strategy.yaml", "plan.json", "edited.json", "deploy.yaml", "bad.yaml").files
    assert [file.kind for file in files] == [
        FileKind.STRATEGY,
        FileKind.PLAN,
        FileKind.PLAN,
        FileKind.DEPLOY,
        None,
    ]
    assert [len(file.diagnostics) for file in files] == [0, 0, 0, 1, 1]
    assert [file.path for file in files][:2] == ["strategy.yaml", "plan.json"]


@pytest.mark.parametrize(
    "text",
    [
        "stages: [{stage_id: -1, max_num_seqs: 2}]",
        "edges: [{from: -1, to: 0, window_size: 4}]",
        "edges: [{from: 0, to: -1, window_size: 4}]",
        "platforms: {rocm: {stages: [{stage_id: -1, max_num_seqs: 2}]}}",
    ],
)
@pytest.mark.parametrize("pipeline", [None, PIPELINE.model_type])
def test_no_pipeline_has_a_stage_below_zero(text: str, pipeline: str | None, show: Show) -> None:
    """So that is told though the pipeline is not known; once."""
    show.write({"deploy.yaml": text})
    (file,) = checked("deploy.yaml", pipeline=pipeline).files
    (found,) = file.diagnostics
    assert (found.code, found.message) == ("CF020", "no stage `-1` in this pipeline")
    assert pipeline or found.help == "stages are those of the model, numbered from `0`"


def test_a_root_with_a_slip_is_that_of_a_strategy(show: Show) -> None:
    """Told once, with what was meant."""
    show.write({"strategy.yaml": "strategeis:\n  front: [{axis: tp, size: 2}]\n"})
    (file,) = checked("strategy.yaml").files
    (found,) = file.diagnostics
    assert file.kind is FileKind.STRATEGY
    assert (found.code, found.help) == (
        "CF010",
        "did you mean `strategies`? allowed here: `strategies`",
    )


def test_a_large_saved_plan_is_known_by_its_beginning(show: Show) -> None:
    """It may be larger than any file that people write."""
    show.write({"plan.json": '{"version": 1, "pipeline": "show"' + " " * 2**20 + "}"})
    (file,) = checked("plan.json").files
    assert (file.kind, file.diagnostics) == (FileKind.PLAN, ())


def test_form_alone_is_checked_where_the_pipeline_is_not_known(show: Show) -> None:
    """Stages and edges may be any, types may not; wide fields are looked at as well."""
    show.write(
        {
            "deploy.yaml": "dtype: 3\nedges: [{from: a, to: 9}]\nstages:\n"
            "- {stage_id: 7, max_num_seqs: 0}\n- {stage_id: 8, async_chunk: false}\n",
            "strategy.yaml": "strategies: {anyone: [{axis: tp, size: 2}, {axis: tq, size: 2}]}",
        }
    )
    result = checked("deploy.yaml", "strategy.yaml")
    assert [file.pipeline for file in result.files] == [None, None]
    assert [shown(found) for found in result.diagnostics] == [
        "CF012 deploy.yaml:1:8",
        "CF013 deploy.yaml:4:31",
        "AX001 strategy.yaml:1:51",
    ]
    assert [document.source for document in result.documents] == ["deploy.yaml", "strategy.yaml"]


def test_a_known_pipeline_is_what_files_are_held_against(show: Show) -> None:
    """The file's own word counts before the caller's, which counts for strategies too."""
    show.write(
        {
            "named.yaml": "pipeline: show\nstages: [{stage_id: 9}]\n",
            "deploy.yaml": "stages: [{stage_id: 8}, {stage_id: 0, async_chunk: false}]\n",
            "strategy.yaml": "strategies: {anyone: [{axis: tp, size: 2}]}",
        }
    )
    result = checked("named.yaml", "deploy.yaml", "strategy.yaml", pipeline="show")
    assert [file.pipeline for file in result.files] == ["show"] * 3
    assert [shown(found) for found in result.diagnostics] == [
        "CF020 named.yaml:2:21",
        "CF020 deploy.yaml:1:21",
        "CF036 deploy.yaml:1:52",
        "CF036 deploy.yaml:1:52",
        "CF020 strategy.yaml:1:14",
    ]
    named = checked("named.yaml", "deploy.yaml").files
    assert [file.pipeline for file in named] == ["show", None]


def test_every_section_of_a_file_is_merged(show: Show) -> None:
    """A clash that one platform alone has is found, and what all have is told once."""
    show.write(
        {
            "deploy.yaml": "pipeline: show\n"
            "stages: [{stage_id: 0, default_sampling_params: {stop: 1}, max_num_seqs: 0}]\n"
            "platforms: {npu: {stages: [{stage_id: 0, default_sampling_params: {stop: {a: 1}}}]}}\n"
        }
    )
    assert [shown(found) for found in checked("deploy.yaml").diagnostics] == [
        "CF013 deploy.yaml:2:74",
        "CF014 deploy.yaml:3:74",
    ]


def test_a_finding_in_a_base_of_several_files_is_told_once(show: Show) -> None:
    """Each file has it, all together one."""
    show.write(
        {
            "base.yaml": "stages: 3",
            "one.yaml": "base_config: base.yaml",
            "two.yaml": "base_config: base.yaml",
        }
    )
    result = checked("one.yaml", "two.yaml")
    assert [len(file.diagnostics) for file in result.files] == [1, 1]
    assert [shown(found) for found in result.diagnostics] == ["CF012 base.yaml:1:9"]


def test_a_pipeline_that_is_not_known_is_told_once_and_form_is_checked(show: Show) -> None:
    """By the caller, or by the file; one that cannot be planned counts as unknown."""
    show.write({"deploy.yaml": "stages: [{stage_id: 9}]", "named.yaml": "pipeline: shw"})
    result = checked("deploy.yaml", pipeline="shw")
    assert [shown(found) for found in result.diagnostics] == ["MD012 --pipeline"]
    assert [shown(found) for found in checked("named.yaml").diagnostics] == [
        "MD012 named.yaml:1:11"
    ]
    broken = dataclasses.replace(PIPELINE, stages=PIPELINE.stages[1:])
    models = (dataclasses.replace(CATALOG.models[0], pipeline=broken),)
    catalog = dataclasses.replace(CATALOG, models=models)
    result = check_files(["deploy.yaml"], "show", catalog)
    assert [found.code for found in result.diagnostics] == ["MD014"]
    assert result.files[0].pipeline is None


def test_what_is_installed_is_taken_without_a_catalog(tmp_path: Path) -> None:
    """The engines and axes of the program itself."""
    (tmp_path / "deploy.yaml").write_text("stages: [{stage_id: 0, engine: 3}]", encoding="utf-8")
    (found,) = check_files([tmp_path / "deploy.yaml"]).diagnostics
    assert found.code == "CF012"


@pytest.mark.parametrize("name", ["none.yaml", ".", "a\0b"])
def test_a_path_that_cannot_be_read_is_told(show: Show, name: str) -> None:
    """As everywhere."""
    assert show.folder.is_dir()
    assert [found.code for found in checked(name).diagnostics] == ["CF001"]


MEASURED: Final = """
import sys, time
from stagemesh.config.validate import check_files
from stagemesh.config.catalog import Catalog
from stagemesh.plan.file_findings import file_findings
catalog, start = Catalog.installed(), time.process_time()
checked = check_files(sys.argv[1:], "voice_chat", catalog)
merged = [each for file in checked.files for each in file.merged]
found = [file_findings(each.pipeline, each.settings, catalog) for each in merged]
print(len(checked.diagnostics) + len(set(found) - {()}), time.process_time() - start)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A hundred small files, and the byte code of who checks them."""
    text = "stages:\n" + "".join(
        f"  - stage_id: {index}\n    devices: '{index}'\n    max_num_seqs: {index + 1}\n"
        "    profiler_config: {max_tokens: 5}\n    env: {A: b}\n"
        for index in range(3)
    )
    for index in range(100):
        (tmp_path / f"f{index}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def seconds_of_checking(folder: Path, program: str) -> float:
    """Check files in a process that does nothing else, and find nothing; return its CPU time."""
    done = subprocess.run(
        [sys.executable, "-c", program, *(file.name for file in folder.glob("*.yaml"))],
        cwd=folder,
        env=clean(folder / "byte_code"),
        capture_output=True,
        text=True,
        check=True,
    )
    num_found, seconds = done.stdout.split()
    assert int(num_found) == 0
    return float(seconds)


def test_a_thousand_small_files_take_seconds(folder: Path) -> None:
    """At most ten; so a hundred of them at most one, in a process that does nothing else."""
    environ = clean(folder / "byte_code")
    assert within(1.0, partial(seconds_of_checking, folder, MEASURED), environ)


@pytest.mark.nightly
def test_what_checking_should_not_do_breaks_its_budget(folder: Path) -> None:
    """A long loop is seen, however slow the machine."""
    slow = MEASURED.replace("checked =", "for _ in range(100_000_000): pass\nchecked =")
    environ = clean(folder / "byte_code")
    assert not within(1.0, partial(seconds_of_checking, folder, slow), environ, tries=ENOUGH)
