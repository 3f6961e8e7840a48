"""Every deploy file in the guide is well, for the pipeline that it is about."""

from __future__ import annotations

import re
from pathlib import Path

from stagemesh.config.validate import FileKind, check_files

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "deploy.md"


def test_every_deploy_file_of_the_guide_is_well(tmp_path: Path) -> None:
    """Held against the stages of a pipeline that ships."""
    blocks = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names = [tmp_path / f"{number}.yaml" for number, _ in enumerate(blocks)]
    for name, block in zip(names, blocks, strict=True):
        name.write_text(block, encoding="utf-8")
    result = check_files(names, "qwen2_5_omni")
    assert result.diagnostics == ()
    assert [file.kind for file in result.files] == [FileKind.DEPLOY] * len(blocks)
    assert len(blocks) >= 2
