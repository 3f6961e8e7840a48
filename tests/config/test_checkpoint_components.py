"""A checkpoint's components: read when the model asks, part of its hash, and weighed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts, WeightFiles
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import CheckpointConfigs, FactsReader, JsonObject
from tests.config.speech import CATALOG, PIPELINE, Speech, told


def find(catalog: Catalog) -> Loaded:
    """Load the checkpoint with nothing else said."""
    return load(PlanInputs(model="model", deploy_config={}), catalog)


def with_index(facts: FactsReader | None, **stage: object) -> Catalog:
    """A catalog whose one model reads `model_index.json`; `stage` changes its first stage."""
    first, *others = PIPELINE.stages
    pipeline = dataclasses.replace(
        PIPELINE,
        facts=facts,
        diffusers_class_names=("SpeechPipeline",),
        stages=(dataclasses.replace(first, **stage), *others),  # type: ignore[arg-type]
    )
    return dataclasses.replace(
        CATALOG, models=(Model(pipeline=pipeline, package="tests.config.shipped"),)
    )


def hashed(loaded: Loaded) -> str:
    """The hash of what was read."""
    assert loaded.checkpoint is not None, told(loaded)
    return loaded.checkpoint.config_hash


def write(file: Path, content: object) -> None:
    """Write a JSON file, and the folder that it is in."""
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def test_a_pipeline_of_components_reads_the_index_as_root(speech: Speech) -> None:
    """Where there is one; the components are read when the model asks for them."""
    seen: list[JsonObject] = []

    def read(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
        seen.extend([configs.root, configs.component("unet"), configs.component("vae")])
        return {}

    index = {"_class_name": "SpeechPipeline"}
    write(speech.checkpoint / "model_index.json", index)
    write(speech.checkpoint / "unet" / "config.json", {"layers": 3})
    loaded = find(with_index(read))
    assert told(loaded) == []
    assert seen == [index, {"layers": 3}, {}]
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.config == index


def test_the_hash_covers_every_file_that_was_read(speech: Speech) -> None:
    """A component that appears is a change as well; a file that nobody reads is none."""

    def read(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
        configs.component("unet")
        return {}

    catalog = with_index(read)
    index = speech.checkpoint / "model_index.json"
    seen = [hashed(find(catalog))]
    write(index, {"_class_name": "SpeechPipeline"})
    seen.append(hashed(find(catalog)))
    write(speech.checkpoint / "unet" / "config.json", {"layers": 3})
    seen.append(hashed(find(catalog)))
    write(speech.checkpoint / "unet" / "config.json", {"layers": 4})
    seen.append(hashed(find(catalog)))
    assert len(set(seen)) == len(seen)
    write(speech.checkpoint / "vae" / "config.json", {})
    assert hashed(find(catalog)) == seen[-1]
    assert len(seen[-1]) == len(hashlib.sha256().hexdigest())


def test_what_a_reader_says_about_the_checkpoint_is_told_as_it_is(speech: Speech) -> None:
    """Without a place of its own it is about the file at the root."""
    there = Origin(layer=Layer.PIPELINE, source="there")

    def refuse(_configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
        raise DiagnosticError(
            [
                Diagnostic(code="XX001", message="one"),
                Diagnostic(code="XX002", message="two", origin=there),
            ]
        )

    loaded = find(with_index(refuse))
    assert told(loaded) == [f"XX001 {speech.checkpoint}/config.json: one", "XX002 there: two"]
    write(speech.checkpoint / "model_index.json", {"_class_name": "SpeechPipeline"})
    assert told(find(with_index(refuse)))[0] == (f"XX001 {speech.checkpoint}/model_index.json: one")


def test_a_component_that_cannot_be_read_is_told_with_its_file(speech: Speech) -> None:
    """The reader sees nothing of it."""
    file = speech.checkpoint / "unet" / "config.json"
    file.parent.mkdir()
    file.write_text("{", encoding="utf-8")

    def read(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
        configs.component("unet")
        pytest.fail("it was read")

    reason = "is not valid JSON: expecting property name enclosed in double quotes"
    assert told(find(with_index(read))) == [f"MD006 {file}:1:2: `unet/config.json` {reason}"]


def test_a_stage_of_several_folders_has_the_weights_of_all(speech: Speech) -> None:
    """Those that are there, each by its name; an index without its files tells a size alone."""
    for name, size in (("unet", 5), ("vae", 3)):
        (speech.checkpoint / name).mkdir()
        (speech.checkpoint / name / "model.safetensors").write_bytes(b"1" * size)
    listed = {"metadata": {"total_size": 70}, "weight_map": {"a": "a.safetensors"}}
    write(speech.checkpoint / "clip" / "model.safetensors.index.json", listed)
    folders = ("unet", "clip", "vae", "none")
    loaded = find(with_index(None, weight_folders=folders))
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.facts["thinker"] == StageFacts(
        component_bytes={"unet": 5, "clip": 70, "vae": 3}, weight_bytes=8
    )


def test_a_reader_may_weigh_for_itself(speech: Speech) -> None:
    """Then nothing is added to what it says."""
    (speech.checkpoint / "thinker").mkdir()
    (speech.checkpoint / "thinker" / "model.safetensors").write_bytes(b"12345")
    seen: list[WeightFiles | None] = []

    def read(configs: CheckpointConfigs) -> Mapping[str, StageFacts]:
        seen.extend([configs.weights("thinker"), configs.weights("vae")])
        return {"thinker": StageFacts(component_bytes={"thinker": 4})}

    loaded = find(with_index(read))
    assert seen == [WeightFiles(num_bytes=5), None]
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.facts["thinker"] == StageFacts(component_bytes={"thinker": 4})


def test_weights_of_the_older_form_are_said_not_to_count(speech: Speech) -> None:
    """Once for each folder."""
    (speech.checkpoint / "thinker").mkdir()
    (speech.checkpoint / "thinker" / "model.bin").touch()
    loaded = find(CATALOG)
    assert told(loaded) == []
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.skipped == ("weights in `thinker`: they are no safetensors files",)
