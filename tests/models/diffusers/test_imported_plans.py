"""`imported.json` is what the installed libraries declare."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stagemesh.models._diffusers.plans.generate import main, parts_text, text
from stagemesh.models._diffusers.plans.imported import FILE, imported
from stagemesh.models._diffusers.plans.parts import FILE as PARTS
from stagemesh.spec.model_plan import TpStyle

pytestmark = pytest.mark.slow


def test_the_generated_files_are_current() -> None:
    """`make plans` would change nothing."""
    assert FILE.read_text(encoding="utf-8") == text()
    assert PARTS.read_text(encoding="utf-8") == parts_text()


def test_the_check_tells_a_file_that_is_not_current(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And writing it makes it current."""
    file = tmp_path / "imported.json"
    file.write_text("{}", encoding="utf-8")
    monkeypatch.setattr("stagemesh.models._diffusers.plans.generate.FILE", file)
    parts = tmp_path / "parts.json"
    monkeypatch.setattr("stagemesh.models._diffusers.plans.generate.PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["generate", "--check"])
    assert main() == 1
    monkeypatch.setattr(sys, "argv", ["generate"])
    assert main() == 0
    assert json.loads(file.read_text(encoding="utf-8")) == json.loads(text())
    assert parts.read_text(encoding="utf-8") == parts_text()


def test_a_packed_layer_knows_where_its_blocks_are() -> None:
    """The linear layer of FLUX's single blocks has them itself."""
    [rule] = [each for each in imported("FluxTransformer2DModel").tp if each.blocks]
    assert rule.module == "single_transformer_blocks.*.proj_out"
    assert (rule.style, rule.blocks) == (TpStyle.ROW, ("proj_out._tp_packed_row_blocks",))
