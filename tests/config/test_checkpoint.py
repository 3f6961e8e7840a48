"""Finding a checkpoint, telling its model, reading its facts; each failure has its own message."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import Loaded, load
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.pipeline import FactsReader, JsonObject
from tests.config.speech import CATALOG, PIPELINE, Speech, read_facts, told

F32: Final[JsonObject] = {"dtype": "F32", "data_offsets": [0, 4]}
"""A tensor as the header of a weight file describes it."""


def weights(header: JsonObject) -> bytes:
    """A weight file that is all header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def find(model: str | Path, catalog: Catalog = CATALOG) -> Loaded:
    """Load a model with nothing else said."""
    return load(PlanInputs(model=str(model), deploy_config={}), catalog)


def reading(facts: FactsReader | None) -> Catalog:
    """Return the catalog with another reader of facts."""
    pipeline = dataclasses.replace(PIPELINE, facts=facts)
    return dataclasses.replace(
        CATALOG, models=(Model(pipeline=pipeline, package="tests.config.shipped"),)
    )


def test_a_folder_is_told_by_its_model_type(speech: Speech) -> None:
    """The checkpoint holds the path, the configuration and the hash of its file."""
    loaded = find("model")
    assert told(loaded) == []
    assert loaded.pipeline is PIPELINE
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.path == speech.checkpoint.resolve()
    assert loaded.checkpoint.config == {"model_type": "speech"}
    content = (speech.checkpoint / "config.json").read_bytes()
    assert loaded.checkpoint.config_hash == hashlib.sha256(content).hexdigest()
    assert loaded.checkpoint.facts == dict.fromkeys(("thinker", "talker", "code2wav"), StageFacts())


def test_a_name_is_looked_up_in_the_cache(speech: Speech) -> None:
    """Folders come first, then assembled checkpoints by their own name."""
    cache = speech.folder / "cache"
    cache.mkdir()
    speech.checkpoint.rename(cache / "speech")
    loaded = find("speech")
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.path == (cache / "speech").resolve()


def test_an_architecture_tells_the_model_when_its_type_does_not(speech: Speech) -> None:
    """Exact names only."""
    speech.configure({"model_type": "other", "architectures": ["Other", "SpeechModel"]})
    assert find("model").pipeline is PIPELINE


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "speech2"},
        {"model_type": "spee"},
        {"model_type": ["speech"], "architectures": "SpeechModel"},
        {"architectures": ["speechmodel", 3, None]},
        {},
    ],
)
def test_a_checkpoint_of_another_model_lists_what_was_looked_at(
    speech: Speech, config: dict[str, object]
) -> None:
    """T58: no substring and no other case is a match."""
    speech.configure(config)
    loaded = find("model")
    assert told(loaded) == [
        f"MD008 {speech.checkpoint.resolve()}/config.json: `config.json` names no known model"
    ]
    help_text = str(loaded.diagnostics[0].help)
    assert help_text.startswith("looked at `model_type` (")
    assert help_text.endswith("known models: `speech`")
    assert (loaded.pipeline, loaded.checkpoint, loaded.settings) == (None, None, None)


def test_two_models_that_fit_are_refused(speech: Speech) -> None:
    """The deploy file decides then."""
    twin = dataclasses.replace(PIPELINE, model_type="twin")
    both = (*CATALOG.models, Model(pipeline=twin, package="tests.config.shipped"))
    catalog = dataclasses.replace(CATALOG, models=both)
    speech.configure({"architectures": ["SpeechModel"]})
    loaded = find("model", catalog)
    assert [found.message for found in loaded.diagnostics] == [
        "`config.json` fits several models: `speech`, `twin`"
    ]
    assert "choose one with `pipeline:` in a deploy file" in str(loaded.diagnostics[0].help)
    assert speech.load(deploy="pipeline: twin", catalog=catalog).pipeline is twin


def test_the_deploy_file_names_the_pipeline_first_of_all(speech: Speech) -> None:
    """T53, T55: it beats the checkpoint, whose configuration may then be empty."""
    speech.configure({})
    loaded = speech.load(deploy="pipeline: speech")
    assert told(loaded) == []
    assert loaded.pipeline is PIPELINE
    loaded = speech.load(deploy="pipeline: speach")
    assert told(loaded) == ["MD012 deploy.yaml:1:11: unknown pipeline `speach`"]
    assert loaded.diagnostics[0].help == "did you mean `speech`? allowed here: `speech`"
    assert loaded.checkpoint is None


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("nothing", ""),
        ("a/b/c", "the folder `a/b` does not exist; "),
        ("cache/x", "no folder in `cache` has a name near it; "),
        ("cache/othr", "did you mean `cache/other`? "),
        ("", ""),
        ("x" * 5000, ""),
        ("nul\0", ""),
        ("..x", ""),
        ("model2", "did you mean `model`? "),
        ("OTHER", "did you mean `other`? "),
        ("spech", "did you mean `speech`? "),
    ],
)
def test_a_model_that_is_nowhere_lists_where_it_could_be(
    speech: Speech, model: str, meant: str
) -> None:
    """The cache and what it holds are named, and how to assemble what can be."""
    (speech.folder / "cache" / "other").mkdir(parents=True)
    loaded = find(model)
    (found,) = loaded.diagnostics
    assert found.code == "MD001"
    assert found.message.endswith("is neither a folder nor an assembled checkpoint")
    assert len(found.message) <= 100
    assert str(found.help) == (
        f"{meant}give an existing folder, or an assembled checkpoint"
        f" (in `{speech.folder}/cache`: `other`); `stagemesh demo-checkpoint` assembles `speech`"
    )


def test_a_file_is_told_what_it_was_meant_to_be(speech: Speech) -> None:
    """The folder of a checkpoint's configuration, or a saved plan; nothing for any other."""
    plan = speech.folder / "plan.json"
    plan.write_text('{"version": 1, "pipeline": "speech"}', encoding="utf-8")
    (speech.folder / "notes.txt").write_text("", encoding="utf-8")
    told = {}
    for model in ("model/config.json", "plan.json", "notes.txt"):
        (found,) = find(model).diagnostics
        assert (found.code, found.origin and found.origin.source) == ("MD002", "MODEL")
        told[model] = found.help
    assert told == {
        "model/config.json": "name the folder that holds it: `model`",
        "plan.json": "it is a saved plan: `stagemesh run plan.json` runs it, `explain` and `diff`"
        " read it",
        "notes.txt": None,
    }


def test_what_is_assembled_needs_no_command(speech: Speech) -> None:
    """Only absent checkpoints are offered."""
    (speech.folder / "cache" / "speech").mkdir(parents=True)
    assert "demo-checkpoint" not in str(find("nothing").diagnostics[0].help)


def test_a_cache_that_does_not_exist_or_is_malformed_is_no_traceback(
    speech: Speech, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first holds nothing; the second is the mistake that is told."""
    assert f"(in `{speech.folder}/cache`: none)" in str(find("nothing").diagnostics[0].help)
    monkeypatch.setenv("STAGEMESH_CACHE", "relative")
    assert [found.code for found in find("nothing").diagnostics] == ["CF050"]


def test_a_file_is_no_folder(speech: Speech) -> None:
    """Naming a weight file is its own mistake."""
    (speech.folder / "model.safetensors").touch()
    assert told(find("model.safetensors")) == [
        "MD002 MODEL: model `model.safetensors` is a file, expected a folder"
    ]


def test_folders_without_a_configuration_say_so(speech: Speech) -> None:
    """Empty, or without any file that could name the model."""
    config = speech.checkpoint / "config.json"
    config.unlink()
    assert told(find("model")) == [f"MD003 {speech.checkpoint}: checkpoint folder is empty"]
    (speech.checkpoint / "model.safetensors").touch()
    assert told(find("model")) == [
        (
            f"MD004 {speech.checkpoint}: checkpoint folder holds no `config.json`"
            " and no `model_index.json`"
        )
    ]


def test_each_file_at_the_root_that_cannot_be_read_is_told(speech: Speech) -> None:
    """Both of them, and then no model is looked for."""
    config, index = (speech.checkpoint / name for name in ("config.json", "model_index.json"))
    config.unlink()
    config.mkdir()
    index.write_text("[]", encoding="utf-8")
    assert told(find("model")) == [
        f"MD005 {config}: `config.json` cannot be read: Is a directory",
        f"MD006 {index}: `model_index.json` must hold an object",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": ', "config.json:1:7: `config.json` is not valid JSON: expecting value"),
        (b"\xff\xfe\x00", "config.json: `config.json` is not valid JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "config.json: `config.json` is not valid JSON"),
        (b"[" * 200_000, "config.json: `config.json` is not valid JSON"),
        (b"[]", "config.json: `config.json` must hold an object"),
    ],
)
def test_a_configuration_that_cannot_be_read_says_so(
    speech: Speech, content: bytes, expected: str
) -> None:
    """Every malformed file is one diagnostic."""
    (speech.checkpoint / "config.json").write_bytes(content)
    assert told(find("model")) == [f"MD006 {speech.checkpoint}/{expected}"]


def test_a_configuration_may_hold_what_its_own_tools_write(speech: Speech) -> None:
    """Infinity is written by published models."""
    text = '{"model_type": "speech", "limits": [0.0, Infinity]}'
    (speech.checkpoint / "config.json").write_text(text, encoding="utf-8")
    assert told(find("model")) == []


def test_facts_come_from_the_models_reader_and_the_weight_files(speech: Speech) -> None:
    """Weights are counted where a folder belongs to one stage."""
    speech.configure({"model_type": "speech", "thinker": {"layers": 30}})
    (speech.checkpoint / "thinker").mkdir()
    (speech.checkpoint / "thinker" / "model.safetensors").write_bytes(weights({"a": F32}))
    (speech.checkpoint / "c.safetensors").write_bytes(b"1")
    loaded = find("model", reading(read_facts))
    assert told(loaded) == []
    assert loaded.checkpoint is not None
    facts = loaded.checkpoint.facts
    size = len(weights({"a": F32}))
    assert facts["thinker"] == StageFacts(num_layers=30, weight_bytes=size, weight_dtype="float32")
    assert facts["talker"] == StageFacts()


def test_weight_bytes_that_the_model_gives_are_kept(speech: Speech) -> None:
    """The reader knows better."""
    loaded = find("model", reading(lambda _config: {"thinker": StageFacts(weight_bytes=7)}))
    assert loaded.checkpoint is not None
    assert loaded.checkpoint.facts["thinker"].weight_bytes == 7
    assert speech.checkpoint == loaded.checkpoint.path


def test_a_weight_file_that_is_gone_is_told(speech: Speech) -> None:
    """A broken link would only be noticed while loading."""
    folder = speech.checkpoint / "thinker"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to("gone")
    assert told(find("model")) == [
        f"MD011 {folder}/a.safetensors: weight file cannot be read: No such file or directory"
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "`config.json` has a value that `speech` cannot use"),
        ({"thinker": 3}, "`config.json` has a value that `speech` cannot use"),
        ({"thinker": {"layers": "30"}}, "`thinker.num_layers` must be a whole number or `null`"),
    ],
)
def test_a_malformed_value_of_the_configuration_is_no_traceback(
    speech: Speech, config: dict[str, object], message: str
) -> None:
    """Whether the model's reader trips over it or hands it on."""
    speech.configure({"model_type": "speech", **config})
    loaded = find("model", reading(read_facts))
    (found,) = loaded.diagnostics
    assert (found.code, str(found.origin)) == ("MD010", f"{speech.checkpoint}/config.json")
    assert found.message.startswith(message.removesuffix(" or `null`"))
    assert loaded.settings is None


def test_a_model_without_its_deploy_file_is_told(speech: Speech) -> None:
    """The file belongs to the model's package."""
    pipeline = dataclasses.replace(PIPELINE, default_deploy_config_name="gone")
    models = (Model(pipeline=pipeline, package="tests.config.shipped"),)
    loaded = load(PlanInputs(model="model"), dataclasses.replace(CATALOG, models=models))
    (found,) = loaded.diagnostics
    assert found.message == "`speech` ships no deploy file `gone.yaml`"
    assert speech.checkpoint.is_dir()


def test_the_checkpoint_folder_may_be_unreadable(
    speech: Speech, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be listed is told like any other failure."""

    def refuse(_self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    (speech.checkpoint / "config.json").unlink()
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert told(find("model")) == [
        f"MD005 {speech.checkpoint}: checkpoint folder cannot be read: Permission denied"
    ]
