"""A checkpoint may name its model in `model_index.json`: by class, or by what any class has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.spec.diagnostic import Severity
from stagemesh.spec.pipeline import ANY_CLASS, JsonObject
from tests.config.speech import CATALOG, PIPELINE, told


def catalog(**changes: dict[str, object]) -> Catalog:
    """Models made from the speech pipeline, by name."""
    models = tuple(
        Model(
            pipeline=replace(PIPELINE, model_type=name, hf_architectures=(), **given),  # type: ignore[arg-type]
            package="tests.config.shipped",
        )
        for name, given in changes.items()
    )
    return replace(CATALOG, models=models)


KNOWN = catalog(
    plain={},
    named={"diffusers_class_names": ("NamedPipeline", "NamedEditPipeline")},
    named_split={"diffusers_class_names": ("NamedPipeline",), "variant_of": "named"},
    small={
        "diffusers_class_names": (ANY_CLASS,),
        "hf_config_predicate": lambda index: "large" not in index,
    },
    large={
        "diffusers_class_names": (ANY_CLASS,),
        "hf_config_predicate": lambda index: "large" in index,
    },
)


@pytest.fixture
def find(tmp_path: Path) -> Callable[..., Loaded]:
    """Load a checkpoint that has these files."""

    def load_files(
        index: JsonObject | None = None, config: JsonObject | None = None, pipeline: str = ""
    ) -> Loaded:
        for name, content in (("model_index.json", index), ("config.json", config)):
            if content is not None:
                (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
        deploy = {"pipeline": pipeline} if pipeline else {}
        return load(PlanInputs(model=str(tmp_path), deploy_config=deploy), KNOWN)

    return load_files


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ({"_class_name": "NamedPipeline"}, "named"),
        ({"_class_name": "NamedEditPipeline", "large": 1}, "named"),
        ({"_class_name": "OtherPipeline"}, "small"),
        ({"_class_name": "OtherPipeline", "large": 1}, "large"),
        ({"_class_name": "namedpipeline"}, "small"),
        ({"_class_name": ANY_CLASS}, "small"),
    ],
)
def test_a_class_means_the_model_that_names_it_and_else_one_that_takes_any(
    find: Callable[..., Loaded], index: JsonObject, expected: str
) -> None:
    """Exact names first; predicates choose among those that take any."""
    loaded = find(index)
    assert told(loaded) == []
    assert loaded.pipeline is not None
    assert loaded.pipeline.model_type == expected
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.config == index


@pytest.mark.parametrize("index", [{}, {"_class_name": None}, {"_class_name": 3}, {"large": 1}])
def test_an_index_without_a_class_names_nothing(
    find: Callable[..., Loaded], tmp_path: Path, index: JsonObject
) -> None:
    """Whoever takes any class takes a class."""
    loaded = find(index)
    name = "model_index.json" if index else "config.json"
    assert [found.partition(": ")[0] for found in told(loaded)] == [f"MD008 {tmp_path}/{name}"]
    assert "`_class_name`" in str(loaded.diagnostics[0].help)


def test_a_component_alone_is_no_checkpoint(find: Callable[..., Loaded]) -> None:
    """Its `config.json` names a class as well, which is none of a pipeline."""
    loaded = find(None, {"_class_name": "SomeTransformer2DModel"})
    assert [found.code for found in loaded.diagnostics] == ["MD008"]
    assert "(`SomeTransformer2DModel`)" in str(loaded.diagnostics[0].help)


def test_a_configuration_that_names_a_model_wins_with_a_warning(
    find: Callable[..., Loaded], tmp_path: Path
) -> None:
    """Both files at the root were looked at."""
    loaded = find({"_class_name": "NamedPipeline"}, {"model_type": "plain"})
    assert loaded.pipeline is not None
    assert loaded.pipeline.model_type == "plain"
    (found,) = loaded.diagnostics
    assert (found.code, found.severity) == ("MD036", Severity.WARNING)
    assert found.message == "`config.json` names `plain`, `model_index.json` names `named`"
    assert str(found.origin) == f"{tmp_path}/config.json"
    assert found.help == "`plain` is taken; another is chosen with `pipeline:` in a deploy file"


@pytest.mark.parametrize(
    ("index", "config"),
    [
        ({"_class_name": "NamedPipeline"}, {"model_type": "named"}),
        ({"_class_name": "OtherPipeline"}, {"model_type": "plain"}),
    ],
)
def test_files_that_do_not_contradict_each_other_are_no_matter(
    find: Callable[..., Loaded], index: JsonObject, config: JsonObject
) -> None:
    """They name the same model, or the index names none."""
    loaded = find(index, config)
    assert told(loaded) == []
    assert loaded.pipeline is not None
    assert loaded.pipeline.model_type == config["model_type"]


@pytest.mark.parametrize("config", [{}, {"model_type": "nobody"}])
def test_a_configuration_that_names_nothing_leaves_the_word_to_the_index(
    find: Callable[..., Loaded], config: JsonObject
) -> None:
    """The model then reads the index."""
    loaded = find({"_class_name": "NamedPipeline"}, config)
    assert told(loaded) == []
    assert loaded.pipeline is not None
    assert loaded.pipeline.model_type == "named"
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.config == {"_class_name": "NamedPipeline"}


def test_a_deploy_file_chooses_a_variant(find: Callable[..., Loaded]) -> None:
    """It reads the same file."""
    loaded = find({"_class_name": "NamedPipeline"}, {"model_type": "plain"}, "named_split")
    assert told(loaded) == []
    assert loaded.pipeline is not None
    assert loaded.pipeline.model_type == "named_split"
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.config == {"_class_name": "NamedPipeline"}
