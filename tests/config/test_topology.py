"""Pipelines of third parties: a graph that can be planned, or findings that name the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pytest

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.fields import stage_fields
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import load
from stagemesh.config.topology import topology_findings
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.pipeline import PipelineConfig, StagePipelineConfig
from stagemesh.spec.registry import MODELS
from tests.config.speech import CATALOG, PIPELINE, Speech, told

END: Final[Mapping[str, object]] = {"final_output": True, "final_output_type": "text"}


def stage(number: int, name: str, *sources: int, **changes: object) -> StagePipelineConfig:
    """One stage."""
    return StagePipelineConfig(
        stage_id=number,
        model_stage=name,
        input_sources=sources,
        **changes,  # type: ignore[arg-type]
    )


def model(*stages: StagePipelineConfig, **changes: object) -> PipelineConfig:
    """A pipeline of these stages."""
    return replace(PIPELINE, stages=stages, **changes)  # type: ignore[arg-type]


def lone(**changes: object) -> PipelineConfig:
    """A pipeline of one sound stage."""
    return model(stage(0, "a", **END), **changes)


def findings(pipeline: PipelineConfig, catalog: Catalog = CATALOG) -> tuple[Diagnostic, ...]:
    """What is wrong with a pipeline, beside those of the catalog."""
    return topology_findings(pipeline, catalog, stage_fields(catalog))


def messages(pipeline: PipelineConfig) -> list[str]:
    """Codes and messages."""
    return [f"{found.code}: {found.message}" for found in findings(pipeline)]


def test_every_installed_pipeline_is_well() -> None:
    """Ours at least."""
    installed = Catalog.installed()
    found = [each for pipeline in MODELS.declarations() for each in findings(pipeline, installed)]
    assert found == []


@pytest.mark.parametrize(
    ("stages", "found"),
    [
        ((), ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `none`", "MD017"]),
        (
            (stage(1, "a", **END), stage(0, "b")),
            ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `1, 0`"],
        ),
        (
            (stage(0, "a", **END), stage(0, "b", 0)),
            ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `0, 0`"],
        ),
        (
            (stage(0, "a", **END), stage(2, "b", 0)),
            ["MD014: stages of `speech` must be numbered `0`, `1`, ..., got `0, 2`"],
        ),
        (
            (stage(0, "a"), stage(1, "a", 0), stage(2, "a", 1, **END)),
            ["MD015: `speech` has two stages called `a`"],
        ),
        (
            (stage(0, "a", **END), stage(1, "b", 7)),
            ["MD016: stage `b` of `speech` cannot take input from `7`"],
        ),
        (
            (stage(0, "a"), stage(1, "b", 0, 0, **END)),
            ["MD016: stage `b` of `speech` cannot take input from `0`"],
        ),
        (
            (stage(0, "a"), stage(1, "b", -1, **END)),
            ["MD016: stage `b` of `speech` cannot take input from `-1`"],
        ),
        ((stage(0, "a", 0, **END),), ["MD016: stage `a` of `speech` takes input from itself"]),
        (
            (stage(0, "a", 1), stage(1, "b", 0, **END)),
            ["MD016: stages of `speech` wait for each other: `a`, `b`"],
        ),
        (
            (
                stage(0, "a"),
                stage(1, "b", 0, 2),
                stage(2, "c", 1),
                stage(3, "d", 2, **END),
            ),
            ["MD016: stages of `speech` wait for each other: `b`, `c`"],
        ),
        ((stage(0, "a"),), ["MD017: no stage of `speech` puts anything out to the user"]),
        (
            (stage(0, "a", final_output=True),),
            ["MD017: the final stage `a` of `speech` names no type"],
        ),
        (
            (stage(0, "a", final_output=True, final_output_type=" "),),
            ["MD017: the final stage `a` of `speech` cannot have the type ` `"],
        ),
        (
            (stage(0, "a", final_output_type="text"), stage(1, "b", 0, **END)),
            ["MD017: stage `a` of `speech` has a final type but is not final"],
        ),
        (
            (stage(0, "a", **END), stage(1, "b", 0), stage(2, "c")),
            [
                "MD017: the output of stage `b` of `speech` goes nowhere",
                "MD017: the output of stage `c` of `speech` goes nowhere",
            ],
        ),
        (
            (stage(0, "0"), stage(1, "b-c", 0), stage(2, "off", 1), stage(3, "1e5", 2, **END)),
            [
                f"MD015: a stage of `speech` cannot be called `{name}`"
                for name in ("0", "b-c", "off", "1e5")
            ],
        ),
        (
            (stage(0, "a", model_subdir="/a", weight_folders=("b", "../c"), **END),),
            [
                "MD025: stage `a` of `speech` cannot have its weights in `/a`",
                "MD025: stage `a` of `speech` cannot have its weights in `../c`",
            ],
        ),
        (
            (stage(0, "a", engine_output_type="wav"), stage(1, "a", 5), stage(2, "no")),
            [
                "MD015: `speech` has two stages called `a`",
                "MD015: a stage of `speech` cannot be called `no`",
                "MD016: stage `a` of `speech` cannot take input from `5`",
                "MD017: no stage of `speech` puts anything out to the user",
                "MD018: stage `a` of `speech` has no output type `wav`",
            ],
        ),
    ],
)
def test_a_graph_that_cannot_be_planned_is_told(
    stages: tuple[StagePipelineConfig, ...], found: list[str]
) -> None:
    """All at once, and one finding for each cause."""
    shown = messages(model(*stages))
    assert len(shown) == len(found), shown
    assert all(got.startswith(wanted) for got, wanted in zip(shown, found, strict=True)), shown


def test_a_graph_without_an_entry_says_what_an_entry_is() -> None:
    """Where a circle takes in every stage."""
    [found] = findings(model(stage(0, "a", 1), stage(1, "b", 0, **END)))
    assert found.help == "no stage is the entry: one of them needs empty `input_sources`"
    [found] = findings(
        model(stage(0, "a"), stage(1, "b", 0, 2), stage(2, "c", 1), stage(3, "d", 2, **END))
    )
    assert found.help is None


@pytest.mark.parametrize(
    ("pipeline", "found", "remedy"),
    [
        (
            lone(model_type="2tts"),
            "MD015: `2tts` cannot be the name of a pipeline",
            "begin with a letter",
        ),
        (
            lone(default_deploy_config_name="../speech"),
            "MD025: `speech` cannot ship a deploy file called `../speech`",
            "give the name of a file",
        ),
        (
            lone(default_deploy_config_name="speech.yaml"),
            "MD025: `speech` cannot ship a deploy file called `speech.yaml`",
            "give the name of a file",
        ),
        (
            lone(stage_cli_aliases={"seqs": ("b", "max_num_seqs")}),
            "MD023: alias `seqs` of `speech` means no stage `b`",
            "allowed here: `a`",
        ),
        (
            lone(stage_cli_aliases={"seqs": ("a", "max_num_seq")}),
            "MD023: alias `seqs` of `speech` means no stage field `max_num_seq`",
            "did you mean `max_num_seqs`?",
        ),
        (
            model(stage(0, "a", **END, lacks={"max_num_seq": "it has none"})),
            "MD037: stage `a` of `speech` cannot lack `max_num_seq`, which no such stage has",
            "did you mean `max_num_seqs`?",
        ),
        (
            lone(model_type="speech_short", variant_of="spech"),
            "MD024: `speech_short` is a variant of `spech`, which is no whole pipeline",
            "did you mean `speech`?",
        ),
    ],
)
def test_what_a_pipeline_says_beside_its_graph_is_checked(
    pipeline: PipelineConfig, found: str, remedy: str
) -> None:
    """Names, aliases, and what it is a variant of."""
    assert messages(pipeline) == [found]
    assert str(findings(pipeline)[0].help).startswith(remedy)


def test_fields_and_parameters_of_the_kind_of_a_stage_may_be_lacking() -> None:
    """Those of its engines too."""
    installed = Catalog.installed()
    lacks = dict.fromkeys(("env", "dtype", "max_num_seqs", "temperature"), "nothing uses it")
    assert findings(model(stage(0, "a", **END, lacks=lacks)), installed) == ()


def test_a_variant_of_a_variant_is_refused() -> None:
    """One step leads to the whole pipeline."""
    short = lone(model_type="short", variant_of="speech")
    models = (*CATALOG.models, Model(pipeline=short, package="nowhere"))
    catalog = replace(CATALOG, models=models)
    assert findings(short, catalog) == ()
    [found] = findings(lone(model_type="shorter", variant_of="short"), catalog)
    assert found.message == "`shorter` is a variant of `short`, which is no whole pipeline"


def test_a_sound_alias_is_taken() -> None:
    """Fields of every kind count."""
    assert messages(lone(stage_cli_aliases={"a_tp": ("a", "tensor_parallel_size")})) == []


@pytest.mark.parametrize("name", ["text", "token_ids", "text+audio", "text,audio", "image", None])
def test_canonical_output_types_are_taken(name: str | None) -> None:
    """Alone and in combination; none at all is text."""
    assert messages(model(stage(0, "a", engine_output_type=name, **END))) == []


@pytest.mark.parametrize(
    ("name", "part", "remedy"),
    [
        ("speech", "speech", "write `audio`"),
        ("text+wav", "wav", "write `audio`"),
        ("waveform", "waveform", "write `audio`"),
        ("images", "images", "write `image`"),
        ("pixel_values", "pixel_values", "write `image`"),
        ("pixels", "pixels", "write `image`"),
        ("latents", "latents", "write `latent`"),
        ("tokens", "tokens", "write `text` for text, or `token_ids` for discrete ids"),
        ("Text", "Text", "did you mean `text`?"),
        ("AUDIO", "AUDIO", "did you mean `audio`?"),
        ("", "", "allowed here: `audio`"),
        ("  ", "  ", "allowed here: `audio`"),
        ("text+", "", "allowed here: `audio`"),
        ("text++audio", "", "allowed here: `audio`"),
        (" text", " text", "did you mean `text`?"),
    ],
)
def test_other_output_types_are_refused_with_what_is_meant(
    name: object, part: str, remedy: str
) -> None:
    """Aliases, another case, and nothing at all."""
    [found] = findings(model(stage(0, "a", engine_output_type=name, **END)))
    assert found.message == f"stage `a` of `speech` has no output type `{part}`"
    assert str(found.help).startswith(remedy)


def test_a_model_with_a_broken_pipeline_is_not_planned(speech: Speech) -> None:
    """What else is wrong is told all the same; other models are not affected."""
    broken = model(stage(0, "thinker", engine_output_type="wav", **END))
    catalog = replace(CATALOG, models=(Model(pipeline=broken, package="nowhere"),))
    loaded = speech.load(deploy="stages: [{stage_id: 0, nonsense: 1}]", catalog=catalog)
    assert (loaded.pipeline, loaded.settings, loaded.checkpoint) == (None, None, None)
    assert [line.partition(" ")[0] for line in told(loaded)] == ["MD018", "CF010"]
    assert str(loaded.diagnostics[0].origin) == "pipeline `speech`"


def test_a_broken_pipeline_is_told_without_a_checkpoint_too(speech: Speech) -> None:
    """The deploy file named it."""
    catalog = replace(CATALOG, models=(Model(pipeline=model(), package="nowhere"),))
    inputs = PlanInputs(model="gone", deploy_config={"pipeline": "speech"})
    found = [each.code for each in load(inputs, catalog).diagnostics]
    assert found == ["MD001", "MD014", "MD017"]
    assert speech.checkpoint.is_dir()
