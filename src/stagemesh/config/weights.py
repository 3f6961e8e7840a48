"""Sizes and type of the weight files in a folder of a checkpoint. No tensor is read.

A folder holds either the files that an index lists, or one file of a usual name, or any number of
others, at any depth. So variants in other types that lie beside the usual file are not counted.
"""

from __future__ import annotations

import json
import stat
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from stagemesh.config.json_file import MIB, read_json_file
from stagemesh.config.place import Run
from stagemesh.errors import DiagnosticError
from stagemesh.spec.facts import WeightFiles
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import JsonObject

_STEMS: Final = ("diffusion_pytorch_model", "model")
"""Names of the weight file, and of its index, that published checkpoints use."""
_SUFFIX: Final = ".safetensors"
_INDEX_LIMIT: Final = 32 * MIB
"""Bytes of an index; one of ninety thousand tensors has nine millions."""
_HEADER_LIMIT: Final = 8 * MIB
"""Bytes of a header that is read to tell the type; one of a thousand tensors has some 0.1 MiB."""
_POINTER: Final = b"version https://git-lfs"
"""How a file begins that stands for one that was not downloaded."""
_DTYPES: Final[Mapping[object, str]] = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}
"""Types by their names in a header; whole numbers are packed weights of another type."""


def weights_in(root: Path, folder: str, run: Run) -> WeightFiles | None:
    """Add up the weight files in a folder of the checkpoint `root`; `None` when it has none."""
    here = root / folder
    for stem in _STEMS:
        name = f"{stem}{_SUFFIX}.index.json"
        try:
            index = read_json_file(here / name, str(PurePosixPath(folder, name)), _INDEX_LIMIT)
        except DiagnosticError as error:
            run.findings.extend(error.diagnostics)
            return None
        if index is not None:
            return _listed(here, here / name, index.content, run)
    usual = [here / f"{stem}{_SUFFIX}" for stem in _STEMS if (here / f"{stem}{_SUFFIX}").exists()]
    return _summed(usual[:1] or sorted(here.rglob(f"*{_SUFFIX}")), run)


def has_other_weights(folder: Path) -> bool:
    """Whether a folder holds weight files of the older form, which is not read."""
    return next(folder.glob("*.bin"), None) is not None


def _listed(folder: Path, index: Path, content: JsonObject, run: Run) -> WeightFiles | None:
    """Add up the files that an index lists; where none is there, the index tells their size."""
    origin = Origin(layer=Layer.PIPELINE, source=str(index))
    listed = content.get("weight_map")
    names = set(listed.values()) if isinstance(listed, Mapping) and _inside(listed) else set()
    if not names:
        run.tell("MD006", f"`{index.name}` lists no weight files by name", origin)
        return None
    files = [folder / name for name in sorted(names)]
    missing = [file for file in files if not file.exists()]
    if len(missing) == len(files):
        metadata = content.get("metadata")
        size = metadata.get("total_size") if isinstance(metadata, Mapping) else None
        told = isinstance(size, int) and not isinstance(size, bool) and size > 0
        return WeightFiles(num_bytes=size, is_present=False) if told and size else None
    if missing:
        gone = Origin(layer=Layer.PIPELINE, source=str(missing[0]))
        help_text = f"`{len(missing)}` of the `{len(files)}` files that `{index.name}` lists are"
        run.tell("MD011", "weight file is missing", gone, f"{help_text} missing; download them")
        return None
    return _summed(files, run)


def _inside(listed: Mapping[object, object]) -> bool:
    """Whether all names are plain file names, so that none leads out of the folder."""
    return all(isinstance(name, str) and name == Path(name).name for name in listed.values())


def _summed(files: Sequence[Path], run: Run) -> WeightFiles | None:
    sizes: dict[Path, int] = {}
    for file in files:
        origin = Origin(layer=Layer.PIPELINE, source=str(file))
        try:
            status = file.stat()
            if not stat.S_ISREG(status.st_mode):  # a pipe would never answer
                run.tell("MD011", "weight file cannot be read: it is no regular file", origin)
                continue
            with file.open("rb") as stream:
                begin = stream.read(len(_POINTER))
        except OSError as error:
            run.tell("MD011", f"weight file cannot be read: {error.strerror}", origin)
            continue
        if begin == _POINTER:
            message = "weight file stands for one that was not downloaded"
            run.tell("MD035", message, origin, "it is a Git LFS pointer: fetch it, `git lfs pull`")
            continue
        sizes[file] = status.st_size
    if not sizes:
        return None
    return WeightFiles(num_bytes=sum(sizes.values()), dtype=_dtype(next(iter(sizes))))


def _dtype(file: Path) -> str | None:
    """Return the type of most weights of a file; what is wrong with it shows when it is loaded."""
    sizes: Counter[object] = Counter()
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length)) if length <= _HEADER_LIMIT else {}
        for name, tensor in header.items():
            if name != "__metadata__":
                start, end = tensor["data_offsets"]
                sizes[tensor["dtype"]] += end - start
    except (OSError, ValueError, struct.error, RecursionError):
        return None
    except (AttributeError, TypeError, KeyError):  # a header of another form
        return None
    return _DTYPES.get(sizes.most_common(1)[0][0]) if sizes else None
