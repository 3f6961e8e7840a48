"""What an engine is given."""

from __future__ import annotations

from pathlib import Path

from stagemesh.testing.engine_context import engine_context


def test_the_weights_of_a_stage_lie_in_its_folder() -> None:
    """Below the folder of the whole model."""
    context = engine_context(None, checkpoint=Path("/models/m"), model_subdir="talker")
    assert context.folder == Path("/models/m/talker")
