"""The networks of a checkpoint of `diffusers`: which it lists, and what each of them says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Final, TypeVar

from stagemesh.errors import DiagnosticError
from stagemesh.models._diffusers.autoencoders import Autoencoder, autoencoder
from stagemesh.models._diffusers.denoisers import Denoiser, denoiser
from stagemesh.models._diffusers.text_encoders import text_encoder
from stagemesh.models.diffusers._components import DECODERS, DENOISERS, ENCODERS
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.facts import StageFacts, WeightFiles
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import DTYPE_BYTES
from stagemesh.spec.pipeline import CheckpointConfigs, JsonObject

_USUAL_DTYPE: Final = "bfloat16"
"""What weights are counted in that are not there and whose type is not told."""
_NAMED: Final = frozenset((*DENOISERS, *ENCODERS, *DECODERS))
_PAIR: Final = 2

Facts = TypeVar("Facts")


@frozen
class Parts:
    """What a checkpoint says about its networks, each by the name of its component."""

    denoisers: Mapping[str, Denoiser] = field(default_factory=dict)
    """Its denoisers."""
    encoders: Mapping[str, StageFacts] = field(default_factory=dict)
    """Its text encoders and what else reads the request."""
    decoders: Mapping[str, Autoencoder] = field(default_factory=dict)
    """Its VAE and what else decodes."""
    others: tuple[str, ...] = ()
    """Its further networks, of which nothing but the weights is known."""


def read_parts(configs: CheckpointConfigs, needed: Mapping[str, tuple[str, ...]]) -> Parts:
    """Read the networks that `model_index.json` lists; one of each group of `needed` must be there.

    Raises `DiagnosticError` with everything that is wrong with them.
    """
    reading = _Reading(configs)
    listed = reading.listed(needed)
    parts = Parts(
        denoisers=reading.each(DENOISERS, listed, denoiser),
        encoders=reading.each(ENCODERS, listed, text_encoder),
        decoders=reading.each(DECODERS, listed, autoencoder),
        others=tuple(name for name in listed if reading.is_further_network(name)),
    )
    if reading.found:
        raise DiagnosticError(reading.found)
    return parts


class _Reading:
    """One walk over the components, which collects what is wrong."""

    def __init__(self, configs: CheckpointConfigs) -> None:
        self._configs = configs
        self._malformed: set[str] = set()
        self.found: list[Diagnostic] = []

    def listed(self, needed: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """Names of the components that have a class."""
        names = tuple(self._components(self._configs.root))
        for what, group in needed.items():
            if not set(group) & {*names, *self._malformed}:
                have = ", ".join(f"`{name}`" for name in names) or "none"
                self.found.append(
                    Diagnostic(
                        code="MD030",
                        message=f"the checkpoint lists no {what}",
                        help=f"looked for {_either(group)}; components: {have}",
                    )
                )
        return names

    def _components(self, root: JsonObject) -> Iterator[str]:
        for name, value in root.items():
            is_known = name in _NAMED
            pair = value if isinstance(value, list) and len(value) == _PAIR else None
            if pair is not None and all(isinstance(each, str) for each in pair):
                if name.isidentifier():  # it is the name of a folder
                    yield name
            elif is_known and value is not None and (pair is None or any(pair)):
                self._malformed.add(name)
                self.found.append(
                    Diagnostic(
                        code="MD032",
                        message=f"`{name}` of `model_index.json` must name a library and a class",
                        help=f'got `{value!r:.60}`; write `["library", "Class"]` or `[null, null]`',
                    )
                )

    def each(
        self, group: tuple[str, ...], listed: tuple[str, ...], read: Callable[[JsonObject], Facts]
    ) -> dict[str, Facts]:
        """Read the components of a group that are listed; each must have its file."""
        facts: dict[str, Facts] = {}
        for name in group:
            config = self._config(name) if name in listed else None
            if config is None:
                continue
            try:
                facts[name] = read(config)
            except TypeError as error:
                self.found.append(
                    Diagnostic(
                        code="MD033",
                        message=f"`{name}/config.json` has a value that no such network can have",
                        help=str(error),
                    )
                )
        return facts

    def _config(self, name: str) -> JsonObject | None:
        try:
            config = self._configs.component(name)
        except DiagnosticError as error:
            self.found.extend(error.diagnostics)
            return None
        if not config:
            self.found.append(
                Diagnostic(
                    code="MD031",
                    message=f"`{name}/config.json`, which `model_index.json` lists, is missing or"
                    " empty",
                    help="download the rest of the checkpoint, or write `[null, null]` for it",
                )
            )
            return None
        return config

    def is_further_network(self, name: str) -> bool:
        """Whether a component of no group has a network: schedulers and tokenizers have none."""
        if name in _NAMED:
            return False
        try:
            return bool(self._configs.component(name))
        except DiagnosticError as error:
            self.found.extend(error.diagnostics)
            return False


def _either(group: tuple[str, ...]) -> str:
    return " or ".join(f"`{name}`" for name in group)


@frozen
class Weights:
    """Weights of some components."""

    component_bytes: Mapping[str, int]
    """Bytes of each component whose size is known."""
    weight_bytes: int | None
    """Bytes of all weight files; `None` when a component has none."""
    dtype: str | None
    """Type of the first component's weights, where the files tell it."""


def weights_of(configs: CheckpointConfigs, components: Mapping[str, StageFacts]) -> Weights:
    """Weigh components: by their files, else by the number of weights that their facts tell."""
    files = {name: configs.weights(name) for name in components}
    sizes = {
        name: _size(files[name], facts)
        for name, facts in components.items()
        if files[name] is not None or facts.num_parameters is not None
    }
    present = [each.num_bytes for each in files.values() if each is not None and each.is_present]
    first = next(iter(files.values()), None)
    return Weights(
        component_bytes=sizes,
        weight_bytes=sum(present) if len(present) == len(files) > 0 else None,
        dtype=None if first is None else first.dtype,
    )


def _size(files: WeightFiles | None, facts: StageFacts) -> int:
    if files is not None:
        return files.num_bytes
    return (facts.num_parameters or 0) * DTYPE_BYTES[facts.weight_dtype or _USUAL_DTYPE]
