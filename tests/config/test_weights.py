"""Adding up weight files: which ones count, what their type is, and what is wrong with them."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.place import Run
from stagemesh.config.weights import has_other_weights, weights_in
from stagemesh.spec.facts import WeightFiles

POINTER: Final = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def weights(header: object, *, length: int | None = None) -> bytes:
    """A weight file that is all header."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def tensor(dtype: str, size: int) -> Mapping[str, object]:
    """One tensor as a header describes it."""
    return {"dtype": dtype, "shape": [size], "data_offsets": [10, 10 + size]}


def index(names: object, size: object = 50) -> str:
    """An index over weight files."""
    return json.dumps({"metadata": {"total_size": size}, "weight_map": names})


def weigh(root: Path, folder: str = "unet") -> tuple[WeightFiles | None, list[str]]:
    """Add up a folder; findings as `code file: message`."""
    run = Run()
    found = weights_in(root, folder, run)
    return found, [
        f"{each.code} {Path(str(each.origin and each.origin.source)).relative_to(root)}:"
        f" {each.message}"
        for each in run.findings
    ]


@pytest.fixture
def unet(tmp_path: Path) -> Path:
    """The folder of a component."""
    folder = tmp_path / "unet"
    folder.mkdir()
    return folder


def test_a_folder_without_weight_files_has_none(tmp_path: Path, unet: Path) -> None:
    """Nor has one that is not there."""
    assert weigh(tmp_path) == (None, [])
    assert weigh(tmp_path, "vae") == (None, [])
    (unet / "model.bin").touch()
    assert weigh(tmp_path) == (None, [])
    assert has_other_weights(unet)
    assert not has_other_weights(tmp_path / "vae")


def test_all_files_count_at_any_depth_where_none_has_a_usual_name(
    tmp_path: Path, unet: Path
) -> None:
    """Whole checkpoints of other libraries."""
    (unet / "shards").mkdir()
    (unet / "shards" / "a.safetensors").write_bytes(b"12345")
    (unet / "b.safetensors").write_bytes(b"123")
    assert weigh(tmp_path) == (WeightFiles(num_bytes=8), [])


@pytest.mark.parametrize("stem", ["diffusion_pytorch_model", "model"])
def test_variants_beside_the_usual_file_do_not_count(tmp_path: Path, unet: Path, stem: str) -> None:
    """Only one of them is loaded."""
    (unet / f"{stem}.safetensors").write_bytes(b"12345")
    (unet / f"{stem}.fp16.safetensors").write_bytes(b"123")
    assert weigh(tmp_path) == (WeightFiles(num_bytes=5), [])


def test_an_index_says_which_files_count(tmp_path: Path, unet: Path) -> None:
    """Two shards, and another file that nobody loads."""
    (unet / "model.safetensors.index.json").write_text(
        index({"x": "a.safetensors", "y": "b.safetensors", "z": "a.safetensors"}), encoding="utf-8"
    )
    (unet / "a.safetensors").write_bytes(b"12345")
    (unet / "b.safetensors").write_bytes(b"123")
    (unet / "model.safetensors").write_bytes(b"1")
    assert weigh(tmp_path) == (WeightFiles(num_bytes=8), [])


def test_an_index_alone_tells_the_size(tmp_path: Path, unet: Path) -> None:
    """Whoever plans needs no weights."""
    file = unet / "model.safetensors.index.json"
    file.write_text(index({"x": "a.safetensors"}), encoding="utf-8")
    assert weigh(tmp_path) == (WeightFiles(num_bytes=50, is_present=False), [])


@pytest.mark.parametrize("size", [0, -1, True, "50", None, 1.5])
def test_a_size_that_is_no_number_is_no_size(tmp_path: Path, unet: Path, size: object) -> None:
    """It is only a hint."""
    file = unet / "model.safetensors.index.json"
    file.write_text(index({"x": "a.safetensors"}, size), encoding="utf-8")
    assert weigh(tmp_path) == (None, [])
    file.write_text('{"weight_map": {"x": "a.safetensors"}}', encoding="utf-8")
    assert weigh(tmp_path) == (None, [])


def test_a_shard_that_is_missing_is_told(tmp_path: Path, unet: Path) -> None:
    """An incomplete download would only be noticed while loading."""
    file = unet / "model.safetensors.index.json"
    names = {name: f"{name}.safetensors" for name in "abc"}
    file.write_text(index(names), encoding="utf-8")
    (unet / "b.safetensors").write_bytes(b"1")
    run = Run()
    assert weights_in(tmp_path, "unet", run) is None
    (found,) = run.findings
    assert (found.code, found.message) == ("MD011", "weight file is missing")
    assert str(found.origin) == f"{unet}/a.safetensors"
    assert found.help == (
        "`2` of the `3` files that `model.safetensors.index.json` lists are missing; download them"
    )


@pytest.mark.parametrize(
    "names",
    [None, [], {}, {"x": 3}, {"x": "../a.safetensors"}, {"x": "/a"}, {"x": "b/a"}, {"x": ["a"]}],
)
def test_an_index_that_lists_no_plain_names_is_told(
    tmp_path: Path, unet: Path, names: object
) -> None:
    """No name leads out of the folder."""
    (unet / "model.safetensors.index.json").write_text(index(names), encoding="utf-8")
    assert weigh(tmp_path) == (
        None,
        [
            (
                "MD006 unet/model.safetensors.index.json:"
                " `model.safetensors.index.json` lists no weight files by name"
            )
        ],
    )


def test_an_index_that_cannot_be_read_is_told(tmp_path: Path, unet: Path) -> None:
    """Like any other JSON file."""
    (unet / "model.safetensors.index.json").write_text("{", encoding="utf-8")
    found, told = weigh(tmp_path)
    assert found is None
    assert len(told) == 1
    assert told[0].startswith(
        "MD006 unet/model.safetensors.index.json: `unet/model.safetensors.index.json` is not valid"
    )


def test_a_file_that_stands_for_another_is_told(tmp_path: Path, unet: Path) -> None:
    """Git LFS leaves such files where the real ones were not fetched."""
    (unet / "model.safetensors").write_bytes(POINTER)
    assert weigh(tmp_path) == (
        None,
        ["MD035 unet/model.safetensors: weight file stands for one that was not downloaded"],
    )


def test_what_is_no_file_is_not_waited_for(tmp_path: Path, unet: Path) -> None:
    """A pipe would never answer; the others still count."""
    os.mkfifo(unet / "a.safetensors")
    (unet / "b.safetensors").write_bytes(b"123")
    (unet / "c.safetensors").symlink_to("gone")
    assert weigh(tmp_path) == (
        WeightFiles(num_bytes=3),
        [
            "MD011 unet/a.safetensors: weight file cannot be read: it is no regular file",
            "MD011 unet/c.safetensors: weight file cannot be read: No such file or directory",
        ],
    )


@pytest.mark.parametrize(
    ("header", "dtype"),
    [
        ({"a": tensor("BF16", 4)}, "bfloat16"),
        ({"a": tensor("F32", 4), "b": tensor("F16", 6), "c": tensor("F32", 1)}, "float16"),
        ({"__metadata__": {"format": "pt"}, "a": tensor("F32", 4)}, "float32"),
        ({"a": tensor("F8_E4M3", 4)}, None),
        ({"a": tensor("U8", 8), "b": tensor("BF16", 4)}, None),
        ({"__metadata__": {}}, None),
        ({}, None),
        ([], None),
        ({"a": 3}, None),
        ({"a": {"dtype": "F32"}}, None),
        ({"a": {"dtype": ["F32"], "data_offsets": [0, 1]}}, None),
        ({"a": {"dtype": "F32", "data_offsets": [0]}}, None),
        ({"a": {"dtype": "F32", "data_offsets": ["0", "1"]}}, None),
    ],
)
def test_the_type_is_that_of_most_weights(
    tmp_path: Path, unet: Path, header: object, dtype: str | None
) -> None:
    """A header of another form tells none, and is no mistake of the plan's."""
    content = weights(header)
    (unet / "model.safetensors").write_bytes(content)
    assert weigh(tmp_path) == (WeightFiles(num_bytes=len(content), dtype=dtype), [])


@pytest.mark.parametrize("content", [b"", b"1234567", weights({}, length=2**60), b"\0" * 8 + b"x"])
def test_a_file_without_a_usable_header_has_no_type(
    tmp_path: Path, unet: Path, content: bytes
) -> None:
    """A header that says that it is huge is not read."""
    (unet / "model.safetensors").write_bytes(content)
    assert weigh(tmp_path) == (WeightFiles(num_bytes=len(content)), [])
