"""Which model a checkpoint is of: T53 to T59, each test named in the table below.

| case | what must hold | test |
| --- | --- | --- |
| T53 | `pipeline:` beats the checkpoint; an unknown name is told | `named` tests |
| T54 | architectures come second; predicates choose; one that raises is told | `predicate` tests |
| T55 | an empty `config.json` is no model, and any model once `pipeline:` names it | `empty` test |
| T56 | `_class_name` of diffusers is looked at last | `class` tests |
| T57 | the default deploy file is the model's own, never one of the same name | `default` test |
| T58 | neither folder names nor parts of names mean anything | `folder` test |
| T59 | shipped deploy files exist and name pipelines that exist | `shipped` test |
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.checkpoint import ConfigFile
from stagemesh.config.identify import model_of
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import load
from stagemesh.config.place import Run
from stagemesh.spec.pipeline import ConfigPredicate, JsonObject, PipelineConfig
from stagemesh.spec.registry import MODELS
from tests.config.speech import CATALOG, PIPELINE, Speech, told


def pipeline(name: str, **changes: object) -> PipelineConfig:
    """A pipeline that answers to its name alone."""
    given: dict[str, object] = {"model_type": name, "hf_architectures": (), **changes}
    return replace(PIPELINE, **given)  # type: ignore[arg-type]


def catalog(*pipelines: PipelineConfig, package: str = "tests.config.shipped") -> Catalog:
    """These models and no others."""
    models = tuple(Model(pipeline=each, package=package) for each in pipelines)
    return replace(CATALOG, models=models)


def identify(config: JsonObject, known: Catalog) -> tuple[str | None, list[str], list[str]]:
    """Tell the model of a configuration: its name, codes and messages, helps and notes."""
    run = Run()
    file = ConfigFile(folder=Path("/models/x"), config=config, digest="")
    model = model_of(file, known, run)
    return (
        None if model is None else model.pipeline.model_type,
        [f"{each.code}: {each.message}" for each in run.findings],
        [
            line
            for each in run.findings
            for line in (str(each.help), *(note.message for note in each.notes))
        ],
    )


def says(key: str, value: object) -> ConfigPredicate:
    """A predicate on one key."""
    return lambda config: config.get(key) == value


# --- T53, T55: the deploy file's word ------------------------------------------------------------


def test_the_pipeline_named_in_the_deploy_file_beats_the_checkpoint(speech: Speech) -> None:
    """T53: whatever the checkpoint's own keys say."""
    known = catalog(pipeline("speech"), pipeline("other"))
    loaded = speech.load(deploy="pipeline: other", catalog=known)
    assert told(loaded) == []
    assert loaded.pipeline is known.models[1].pipeline


def test_an_unknown_pipeline_that_is_named_is_told_with_the_nearest(speech: Speech) -> None:
    """T53: and the checkpoint is not asked instead."""
    loaded = speech.load(deploy="pipeline: speach")
    assert told(loaded) == ["MD012 deploy.yaml:1:11: unknown pipeline `speach`"]
    assert str(loaded.diagnostics[0].help).startswith("did you mean `speech`?")
    assert loaded.pipeline is None


def test_where_no_pipeline_is_near_the_listing_is_named(speech: Speech) -> None:
    """Of many, none would be shown."""
    known = catalog(*(pipeline(f"model_{number}") for number in range(17)))
    [found] = speech.load(deploy="pipeline: zzz", catalog=known).diagnostics
    assert found.help == (
        "none of the `17` names allowed here is near; `stagemesh list models` lists them all"
    )


def test_a_name_that_two_installed_models_have_is_told(speech: Speech) -> None:
    """Neither of them is taken, named or not."""
    twins = (*catalog(PIPELINE).models, *catalog(PIPELINE, package="elsewhere").models)
    known = replace(CATALOG, models=twins)
    for deploy in ("pipeline: speech", "{}"):
        loaded = speech.load(deploy=deploy, catalog=known)
        [found] = loaded.diagnostics
        assert found.code == "MD009"
        assert found.message == "2 installed models are called `speech`"
        assert str(found.help).startswith("they are in `tests.config.shipped`, `elsewhere`")
        assert loaded.pipeline is None


def test_an_empty_configuration_is_any_model_that_is_named(speech: Speech) -> None:
    """T55: and without a name it is none."""
    speech.configure({})
    assert [found.code for found in speech.load().diagnostics] == ["MD008"]
    loaded = speech.load(deploy="pipeline: speech")
    assert told(loaded) == []
    assert loaded.pipeline is PIPELINE


# --- T54: keys and predicates --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"model_type": "a"}, "a"),
        ({"model_type": "a", "architectures": ["BModel"]}, "a"),
        ({"model_type": "x", "architectures": ["BModel"]}, "b"),
        ({"architectures": ["XModel", "BModel"]}, "b"),
        ({"model_type": "x", "_class_name": "CPipeline"}, "c"),
        ({"architectures": ["BModel"], "_class_name": "CPipeline"}, "b"),
    ],
)
def test_the_first_key_that_one_model_answers_to_decides(config: JsonObject, found: str) -> None:
    """T54, T56: `model_type`, then `architectures`, then the class of diffusers."""
    known = catalog(
        pipeline("a"),
        pipeline("b", hf_architectures=("BModel",)),
        pipeline("c", diffusers_class_names=("CPipeline", "CDmdPipeline")),
    )
    assert identify(config, known) == (found, [], [])


@pytest.mark.parametrize("name", ["CPipeline", "CDmdPipeline"])
def test_every_class_that_a_pipeline_names_means_it(name: str) -> None:
    """T56."""
    known = catalog(pipeline("c", diffusers_class_names=("CPipeline", "CDmdPipeline")))
    assert identify({"_class_name": name}, known)[0] == "c"
    assert identify({"_class_name": name.lower()}, known)[0] is None


@pytest.mark.parametrize(("version", "found"), [("4.5", "new"), ("2.6", "old")])
def test_predicates_choose_between_pipelines_with_the_same_keys(version: str, found: str) -> None:
    """T54."""
    known = catalog(
        pipeline("new", hf_architectures=("M",), hf_config_predicate=says("version", "4.5")),
        pipeline("old", hf_architectures=("M",), hf_config_predicate=says("version", "2.6")),
    )
    assert identify({"architectures": ["M"], "version": version}, known) == (found, [], [])


def test_predicates_that_all_say_no_are_listed() -> None:
    """T54: with every key that was looked at."""
    known = catalog(
        pipeline("new", hf_architectures=("M",), hf_config_predicate=says("version", "4.5"))
    )
    found, messages, lines = identify({"architectures": ["M"], "version": "1"}, known)
    assert found is None
    assert messages == ["MD008: `config.json` names no known model"]
    assert lines == [
        (
            "looked at `model_type` (absent), `architectures` (`M`) and `_class_name` (absent);"
            " known models: `new`"
        ),
        "`new` answers to its `architectures`, but its predicate says no",
    ]


def test_predicates_that_all_say_yes_leave_two_models() -> None:
    """T54, #4033: nothing depends on the order in which models are installed."""
    both = (
        pipeline("a", hf_architectures=("M",)),
        pipeline("b", hf_architectures=("M",), hf_config_predicate=says("version", "1")),
    )
    config = {"model_type": "x", "architectures": ["M"], "version": "1"}
    for known in (catalog(*both), catalog(*both[::-1])):
        found, [message], [line] = identify(config, known)
        assert found is None
        assert message.startswith("MD009: `config.json` fits several models: ")
        assert line == (
            "looked at `model_type` (`x`), `architectures` (`M`) and `_class_name` (absent);"
            " choose one with `pipeline:` in a deploy file"
        )


def test_a_predicate_that_raises_is_told_and_no_model_taken() -> None:
    """T54: it is not as if it had said no."""

    def careless(config: JsonObject) -> bool:
        return bool(config["version"])

    known = catalog(
        pipeline("a", hf_architectures=("M",), hf_config_predicate=careless),
        pipeline("b", hf_architectures=("M",)),
    )
    found, messages, [line] = identify({"architectures": ["M"]}, known)
    assert found is None
    assert messages == ["MD019: `a` cannot tell whether `config.json` is one of its own"]
    assert line.startswith("its predicate failed with `KeyError: 'version'`")


def test_a_predicate_is_asked_only_where_a_key_fits() -> None:
    """T54: a model of another kind need not understand the file."""

    def never(_config: JsonObject) -> bool:
        raise AssertionError

    known = catalog(
        pipeline("a"), pipeline("b", hf_architectures=("M",), hf_config_predicate=never)
    )
    assert identify({"model_type": "a", "architectures": ["M"]}, known) == ("a", [], [])


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"model_type": "whole", "speaks": True}, "whole"),
        ({"model_type": "whole", "speaks": False}, "cut"),
        ({"architectures": ["Whole"], "speaks": False}, "cut"),
        ({"model_type": "cut"}, None),
        ({"model_type": "silent"}, None),
    ],
)
def test_a_variant_with_a_predicate_answers_to_the_keys_of_the_whole(
    config: JsonObject, found: str | None
) -> None:
    """One without is taken by name alone, whatever a checkpoint says."""
    known = catalog(
        pipeline(
            "whole", hf_architectures=("Whole",), hf_config_predicate=says("speaks", value=True)
        ),
        pipeline("cut", variant_of="whole", hf_config_predicate=says("speaks", value=False)),
        pipeline("silent", variant_of="whole"),
    )
    assert identify(config, known)[0] == found


def test_nested_configurations_do_not_count() -> None:
    """Only keys of the root."""
    config = {"text_config": {"model_type": "a", "architectures": ["M"]}}
    known = catalog(pipeline("a", hf_architectures=("M",)))
    assert identify(config, known)[0] is None


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": ["a"]},
        {"model_type": {"a": 1}},
        {"model_type": True},
        {"architectures": "M"},
        {"architectures": {"M": 1}},
        {"architectures": [None, ["M"], 3]},
        {"_class_name": ["CPipeline"]},
        {"model_type": "A"},
        {"model_type": " a"},
    ],
)
def test_values_of_another_form_mean_nothing(config: JsonObject) -> None:
    """And are no traceback."""
    known = catalog(pipeline("a", hf_architectures=("M",), diffusers_class_names=("CPipeline",)))
    found, messages, _ = identify(config, known)
    assert found is None
    assert messages == ["MD008: `config.json` names no known model"]


def test_of_many_names_only_some_are_shown() -> None:
    """A file may list thousands, and so may what is installed."""
    many = [f"M{number}" for number in range(1000)]
    known = catalog(*(pipeline(f"p{number}") for number in range(17)))
    _, _, [line] = identify({"architectures": many}, known)
    assert "`M15`, ...)" in line
    assert "`M16`" not in line
    assert line.endswith("known models: see `stagemesh list models`")


# --- T57, T58, T59: names of folders and files ---------------------------------------------------


def test_the_default_deploy_file_is_the_models_own(speech: Speech) -> None:
    """T57: a file of its name in the current folder is not looked at."""
    for folder in (speech.folder, speech.folder / "deploy"):
        folder.mkdir(exist_ok=True)
        (folder / "speech.yaml").write_text("nonsense: 1\n", encoding="utf-8")
    loaded = load(PlanInputs(model="model"), CATALOG)
    assert told(loaded) == []
    shipped = Path(__file__).parent / "shipped" / "deploy" / "speech.yaml"
    assert [document.text for document in loaded.documents] == [shipped.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", ["balance-7b", "speech", "speech-7b", "SpeechModel"])
def test_the_name_of_a_folder_means_nothing(speech: Speech, name: str) -> None:
    """T58: not even when it is the very name of a model."""
    speech.configure({})
    folder = speech.folder / name
    speech.checkpoint.rename(folder)
    loaded = load(PlanInputs(model=str(folder), deploy_config={}), CATALOG)
    assert [found.code for found in loaded.diagnostics] == ["MD008"]


SHIPPED: Final[Mapping[str, Path]] = {
    file.stem: file
    for module in MODELS.modules().values()
    for folder in importlib.import_module(module.rpartition(".")[0]).__path__
    for file in sorted(Path(folder, "deploy").glob("*"))
}


def test_every_shipped_deploy_file_belongs_to_a_pipeline() -> None:
    """T59: default files exist, and every `pipeline:` is one that is installed."""
    pipelines = {each.model_type: each for each in MODELS.declarations()}
    assert {each.default_deploy_config_name for each in pipelines.values()} <= SHIPPED.keys()
    for file in SHIPPED.values():
        assert file.suffix == ".yaml"
        named = yaml.safe_load(file.read_text(encoding="utf-8")).get("pipeline")
        assert named is None or named in pipelines
