"""Assembles the checkpoint folder `voice_chat` from weights that installed packages carry.

    thinker/    SmolLM2-135M-Instruct as bfloat16 safetensors with tokenizer and chat template
    talker/     text encoder, duration predictor and flow of a VITS voice
    code2wav/   the HiFi-GAN decoder of the same voice
    config.json names the pipeline and nests the three configurations, for the planner
    NOTICE      where the weights come from and under which licences

Contract: a folder is either complete or absent. It is built beside its place and renamed, under a
file lock, so that two processes never build at once. A complete folder of the same recipe and the
same installed packages is returned at once; otherwise it is built again. No network is used.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, TextIO

from stagemesh.models.voice_chat._sources import (
    SOURCES,
    THINKER,
    VOICE,
    BadSourceError,
    MissingSourceError,
    check_files,
    installed_versions,
    require_module,
)
from stagemesh.models.voice_chat._thinker_files import write_thinker
from stagemesh.models.voice_chat._voice_files import write_voice

__all__ = ["BadSourceError", "MissingSourceError", "assemble", "is_complete"]

RECIPE: Final = 2
"""Raised whenever the files that an assembly writes change; an older folder is then rebuilt."""
STAMP: Final = "assembled.json"
"""File that only a complete folder has: recipe, package versions and the size of every file."""
_LOCK_DEADLINE_S: Final = 600.0
"""How long to wait for another process that assembles; it takes about a minute."""

_TOOLS: Final = (
    ("gguf", "gguf"),
    ("onnx", "onnx"),
    ("torch", "torch"),
    ("safetensors", "safetensors"),
)


def assemble(folder: Path, *, progress: Callable[[str], None]) -> Path:
    """Return `folder` holding the complete checkpoint, building it first when needed.

    `progress` gets one line per step and nothing when the folder is reused. Raises
    `MissingSourceError` (a `ModuleNotFoundError`) naming the command that installs an absent
    package, `BadSourceError` (a `ValueError`) for a package with other weights, `FileExistsError`
    when `folder` holds something else, `TimeoutError` when another process holds the lock for too
    long, and `OSError` when it cannot be written.
    """
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f".{folder.name}.lock"), progress):
        if is_complete(folder):  # another process built it while this one waited
            return folder
        _refuse_foreign(folder)
        _require_everything()
        building = folder.with_name(f".{folder.name}.building")
        shutil.rmtree(building, ignore_errors=True)  # left by a build that was killed
        building.mkdir()
        try:
            _build(building, progress)
            _replace(folder, building)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    progress(f"checkpoint is in `{folder}`")
    return folder


def is_complete(folder: Path) -> bool:
    """Tell whether `folder` is a whole checkpoint of this recipe and of the installed packages.

    A package that is not installed now does not make its checkpoint stale.
    """
    stamp = _read_stamp(folder)
    if stamp is None or stamp.get("recipe") != RECIPE:
        return False
    versions = stamp.get("sources")
    files = stamp.get("files")
    if not isinstance(versions, dict) or not isinstance(files, dict) or not files:
        return False
    if any(versions.get(name) != version for name, version in installed_versions().items()):
        return False
    return all(_size(folder / name) == size for name, size in files.items())


def _read_stamp(folder: Path) -> dict[str, Any] | None:
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


@contextlib.contextmanager
def _locked(path: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the kernel drops it when the holder dies."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that assembles the checkpoint")
            _wait_for(lock)
        yield


def _wait_for(lock: TextIO) -> None:
    """Take the lock; raises `TimeoutError` naming its file when it stays taken.

    The call knows no deadline, so a thread makes it, on a descriptor of its own: a thread that is
    left behind gives the lock back as soon as it gets it.
    """
    descriptor = os.dup(lock.fileno())
    taken: Future[None] = Future()

    def take() -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            taken.set_result(None)
        except OSError as error:
            taken.set_exception(error)
        finally:
            os.close(descriptor)

    threading.Thread(target=take, name="stagemesh-lock", daemon=True).start()
    try:
        taken.result(timeout=_LOCK_DEADLINE_S)
    except TimeoutError:
        message = f"`{lock.name}` is still locked by another process after {_LOCK_DEADLINE_S:g} s"
        raise TimeoutError(message) from None


def _refuse_foreign(folder: Path) -> None:
    """Raise `FileExistsError` unless `folder` is absent, empty or an older assembly."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / STAMP).exists()):
        raise FileExistsError(f"`{folder}` exists and is not an assembled checkpoint")


def _require_everything() -> None:
    """Find every package and file before any work is done."""
    for module, distribution in _TOOLS:
        require_module(module, f"pip install {distribution}")
    for source in SOURCES:
        check_files(source)


def _build(folder: Path, progress: Callable[[str], None]) -> None:
    for name in ("thinker", "talker", "code2wav"):
        (folder / name).mkdir()
    progress(f"thinker: dequantising the weights of `{THINKER.distribution}`")
    thinker = write_thinker(folder / "thinker")
    progress(f"talker and code2wav: reading the voice of `{VOICE.distribution}`")
    talker, code2wav = write_voice(folder / "talker", folder / "code2wav")
    config = {
        "architectures": ["VoiceChatForConditionalGeneration"],
        "model_type": "voice_chat",
        "thinker_config": thinker,
        "talker_config": {key: value for key, value in talker.items() if key != "phoneme_ids"},
        "code2wav_config": code2wav,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "NOTICE").write_text(_notice(), encoding="utf-8")
    # the stamp last: a folder that has it has everything
    files = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    stamp = {"recipe": RECIPE, "sources": installed_versions(), "files": files}
    (folder / STAMP).write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")


def _replace(folder: Path, building: Path) -> None:
    """Put `building` in the place of `folder`."""
    old = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    building.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _notice() -> str:
    lines = [
        "This folder was assembled by stagemesh on this machine from installed packages.",
        "stagemesh does not distribute these weights; their own licences apply.",
        "",
    ]
    lines += [f"{source.distribution}: {source.licence}" for source in SOURCES]
    return "\n".join(lines) + "\n"
