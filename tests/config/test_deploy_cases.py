"""The telling cases of deploy files, T33 to T51, each as a table row."""

from __future__ import annotations

import dataclasses

import pytest

from stagemesh.config.catalog import Catalog
from stagemesh.config.inputs import python_fields
from stagemesh.config.load import Loaded
from stagemesh.config.schema_duplex import DuplexSession
from stagemesh.config.settings import Sourced
from stagemesh.plan.make import Made
from stagemesh.spec.pipeline import StagePipelineConfig
from stagemesh.spec.unset import UNSET
from tests.config.deploy_cases import BASE, CASES, Case, stages
from tests.config.deploying import CATALOG, PIPELINE, Show, said

NAMES = tuple(stage.model_stage for stage in PIPELINE.stages)


def codes(made: Made) -> list[str]:
    """Return the codes of all findings."""
    return [each.code for each in made.diagnostics]


def with_stages(changed: tuple[StagePipelineConfig, ...]) -> Catalog:
    """Return the catalog with other stages of the pipeline."""
    pipeline = dataclasses.replace(PIPELINE, stages=changed)
    models = (dataclasses.replace(CATALOG.models[0], pipeline=pipeline),)
    return dataclasses.replace(CATALOG, models=models)


def found(loaded: Loaded, path: str) -> object:
    """Return the value at a path of a stage, or of the pipeline."""
    stage, _, inside = path.partition(".")
    if stage in NAMES:
        given = said(loaded, stage, inside)
        return given if given is UNSET else given.value
    assert loaded.settings is not None
    return loaded.settings.fields[path].value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_case_comes_out_as_it_says(show: Show, case: Case) -> None:
    """Values or findings, exactly."""
    show.write(case.files)
    loaded = show.load(stage_overrides=case.overrides, platform=case.platform)
    shown = [f"{each.code} {each.origin}: {each.message}" for each in loaded.diagnostics]
    assert len(shown) == len(case.told), shown
    for line, beginning in zip(shown, case.told, strict=True):
        assert line.startswith(beginning)
    assert all(len(each.message) <= 100 for each in loaded.diagnostics)
    assert {path: found(loaded, path) for path in case.values} == case.values
    if case.help:
        assert case.help in str(loaded.diagnostics[0].help)


def test_every_case_of_this_layer_is_here() -> None:
    """T45 and T50 also need a plan, and have tests of their own below."""
    numbers = {case.name.split()[0] for case in CASES} | {"T45"}
    assert numbers == {f"T{number}" for number in range(33, 52)}


def test_t35_what_was_given_from_python_stays_as_it_was(show: Show) -> None:
    """Reading and merging change no input."""
    given: dict[str, object] = {"stages": [{"stage_id": 0, "env": {"A": "x"}}]}
    overrides = {"0": {"env": {"B": "y"}}}
    loaded = show.load(given, stage_overrides=overrides)
    assert found(loaded, "thinker.env") == {"A": "x", "B": "y"}
    assert given == {"stages": [{"stage_id": 0, "env": {"A": "x"}}]}
    assert overrides == {"0": {"env": {"B": "y"}}}


def test_t36_an_overlay_that_says_nothing_is_its_base(show: Show) -> None:
    """Equal settings, every value still at its place in the base."""
    show.write({"base.yaml": "dtype: auto\n" + BASE, "deploy.yaml": "base_config: base.yaml"})
    base, overlay = show.load("base.yaml"), show.load()
    assert base.settings == overlay.settings
    given = said(overlay, "thinker", "max_num_seqs")
    assert isinstance(given, Sourced)
    assert str(given.origin) == "base.yaml:3:33"


def test_t44_sessions_have_their_defaults_and_cannot_be_changed(show: Show) -> None:
    """Null clears what has a default, and is itself the value where it means never."""
    case = next(case for case in CASES if case.name == "T44 null is a value of the idle time")
    show.write(case.files)
    loaded = show.load()
    assert loaded.settings is not None
    assert loaded.diagnostics == ()
    session = loaded.settings.fields["duplex_session"].value
    assert session == DuplexSession(idle_ttl_s=None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        session.max_sessions = 3  # type: ignore[misc]


def test_t45_required_stop_ids_are_appended(show: Show) -> None:
    """The file's own come first, none twice, and a scalar of the pipeline wins with a warning."""
    show.write(
        {
            "deploy.yaml": stages(
                "default_sampling_params: {stop_token_ids: [100, 151704], detokenize: true}"
            )
        }
    )
    made = show.make()
    assert [found.code for found in made.diagnostics] == ["PL026"]
    assert made.plan is not None
    assert made.plan.stage(0).sampling == {
        "stop_token_ids": (100, 151704, 151645),
        "detokenize": False,
    }


def test_t46_chunks_on_a_pipeline_without_any_are_an_error(show: Show) -> None:
    """Asked for at the root, or of a stage that has no chunks on any edge."""
    silent = tuple(dataclasses.replace(each, produces_chunks=False) for each in PIPELINE.stages)
    catalog = with_stages(silent)
    show.write({"deploy.yaml": "async_chunk: true\n", "stage.yaml": stages("async_chunk: true")})
    assert codes(show.make(catalog=catalog)) == ["PL033"]
    assert codes(show.make("stage.yaml", catalog=catalog)) == ["CF037"]


def test_t46_stages_cannot_promise_what_the_pipeline_denies(show: Show) -> None:
    """In files; a flag for this start turns chunks off without a word."""
    show.write({"deploy.yaml": "async_chunk: false\n" + stages("async_chunk: true")})
    (found,) = show.load().diagnostics
    assert (found.code, str(found.origin)) == ("CF037", "deploy.yaml:3:32")
    assert str(found.notes[0].origin) == "deploy.yaml:1:14"
    fields = python_fields({"async_chunk": False})
    made = show.make({"stages": [{"stage_id": 0, "async_chunk": True}]}, fields=fields)
    assert codes(made) == []


def test_t50_a_field_of_another_kind_of_stage_is_an_error(show: Show) -> None:
    """The kind, or the engine, of the stage has to have it, wherever it is written."""
    for text in ("seed: 3", "engine_extras: {seed: 3}"):
        show.write({"deploy.yaml": stages("", "", "", text)})
        (found,) = show.make().diagnostics
        assert (found.code, found.message) == (
            "PL027",
            "`painter` is a `diffusion` stage, which has no `seed`",
        )
    show.write({"deploy.yaml": stages("cfg_parallel_size: 2")})
    assert codes(show.make()) == ["AX020"]
    show.write({"deploy.yaml": stages("engine_extras: {cfg_parallel_size: 2, devices: '0'}")})
    first, second = show.make().diagnostics
    assert (first.code, first.message) == ("CF032", "`cfg_parallel_size` is no option of an engine")
    assert second.help == "write it directly in the entry of the stage"
