"""The guide says which classes are known, and says the truth."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import yaml

from stagemesh.models._diffusers.autoencoders import KNOWN_AUTOENCODERS
from stagemesh.models._diffusers.denoisers import KNOWN_DENOISERS
from stagemesh.models._diffusers.text_encoders import KNOWN_TEXT_ENCODERS
from stagemesh.spec.pipeline import ANY_CLASS
from tests.models.diffusers.published import BY_NAME, FIXTURES, planned

GUIDE: Final = (
    Path(__file__).parents[3].joinpath("docs", "guide", "diffusers.md").read_text(encoding="utf-8")
)


def quoted(text: str) -> tuple[str, ...]:
    """Everything in backticks."""
    return tuple(re.findall("`([^`]+)`", text))


def block(name: str) -> str:
    """What follows a comment, up to the next one or an empty line."""
    return re.split(r"\n\n|<!--", GUIDE.partition(f"<!-- {name} -->\n")[2])[0]


def test_the_table_of_classes_is_what_is_declared() -> None:
    """Every whole pipeline with its classes and what it puts out."""
    rows = [line.strip("|").split("|") for line in block("classes").splitlines()[2:]]
    shown = {quoted(name)[0]: (output.strip(), quoted(names)) for name, output, names in rows}
    assert shown == {
        name: (
            pipeline.stages[0].final_output_type,
            tuple(each for each in pipeline.diffusers_class_names if each != ANY_CLASS),
        )
        for name, pipeline in BY_NAME.items()
        if pipeline.variant_of is None
    }


def test_the_lists_of_understood_classes_are_complete() -> None:
    """In the order of the tables in the code."""
    assert quoted(block("denoisers")) == KNOWN_DENOISERS
    assert quoted(block("text encoders"))[1:] == KNOWN_TEXT_ENCODERS
    assert quoted(block("VAEs")) == KNOWN_AUTOENCODERS


def test_the_example_of_a_split_plans() -> None:
    """Both files, on the published configuration."""
    deploy, strategy = (
        yaml.safe_load(text) for text in re.findall("```yaml\n(.*?)```", GUIDE, flags=re.DOTALL)
    )
    plan = planned(FIXTURES / "flux", strategy["strategies"], deploy)
    assert {stage.name: stage.world_size for stage in plan.stages} == {
        "text_encoder": 2,
        "denoiser": 4,
        "vae": 4,
    }


def test_every_split_stage_is_in_the_table() -> None:
    """With its components."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", GUIDE, flags=re.MULTILINE))
    for stage in BY_NAME["flux_split"].stages:
        named = set(quoted(rows[stage.model_stage]))
        assert named <= set(stage.weight_folders)
