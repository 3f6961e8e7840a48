"""The guide of models says what their declarations say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from stagemesh.cli._main import main
from stagemesh.spec.pipeline import PipelineConfig
from tests.architecture.source import ROOT
from tests.models.shipping import CATALOG, config_of, planned
from tests.models.test_shipped import deploy_files, family

GUIDE: Final = (ROOT / "docs" / "guide" / "models.md").read_text(encoding="utf-8")
OTHER_PAGES: Final = {"stagemesh.models.diffusers": "diffusers.md"}
"""Packages whose pipelines have a page of their own, which the guide leads to."""


def rows(marker: str) -> list[list[str]]:
    """Cells of the table below a marker, without its heading."""
    table = GUIDE.partition(f"<!-- {marker} -->")[2].lstrip("\n").partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]


def block(marker: str) -> str:
    """Content of the code block below a marker."""
    found = re.search(rf"<!-- {marker} -->\n```\w+\n(.*?)```", GUIDE, flags=re.DOTALL)
    assert found is not None
    return found[1]


def row(pipeline: PipelineConfig) -> list[str]:
    """What the guide has to say about a pipeline."""
    name = f"`{pipeline.model_type}`"
    if pipeline.variant_of is not None:
        name += f", of `{pipeline.variant_of}`"
    given = [stage.final_output_type for stage in pipeline.stages if stage.final_output]
    return [
        name,
        ", ".join(pipeline.input_modalities),
        ", ".join(map(str, given)),
        " -> ".join(f"`{stage.model_stage}`" for stage in pipeline.stages),
        "no" if pipeline.duplex is None else "yes",
    ]


def test_the_guide_has_every_pipeline() -> None:
    """Those with a page of their own are not repeated."""
    here = [each.pipeline for each in CATALOG.models if each.package not in OTHER_PAGES]
    assert rows("pipelines") == [row(pipeline) for pipeline in here]
    assert all(f"]({page})" in GUIDE for page in OTHER_PAGES.values())


def test_the_guide_has_every_deploy_file() -> None:
    """Each by its name."""
    pages = {package.rpartition(".")[2] for package in OTHER_PAGES}
    names = {path.stem for path in deploy_files() if family(path) not in pages}
    assert sorted(cells[0].strip("`") for cells in rows("files")) == sorted(names)


def test_only_the_demo_runs() -> None:
    """As the guide says."""
    running = {
        each.pipeline.model_type for each in CATALOG.models if not each.pipeline.planning_only
    }
    assert running == {"voice_chat"}


def test_the_overlay_works() -> None:
    """It is laid on a file that ships."""
    [edge] = planned("qwen3_tts", yaml.safe_load(block("overlay qwen3_tts"))).edges
    assert edge.model_options["talker_first_audio"] is False


def test_the_message_is_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the list of all models."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "MiniCPM-o-2_6"
    folder.mkdir()
    config = {**config_of("minicpmo_4_5"), "version": "2.6"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert main(["plan", folder.name]) == 1
    shown = capsys.readouterr().err.replace(f"{tmp_path}/", "")
    assert shown.startswith(block("screen").rstrip().removesuffix("..."))
