"""Places of values, and the run of a check that collects what is wrong with them."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from stagemesh.config.tree import Path, path_text, quoted
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET, Unset

_LABEL_LIMIT = 48


class Located(Protocol):
    """Something that knows where its values were written."""

    def origin(self, path: Path) -> Origin:
        """Return the place of the value at `path`."""
        ...

    def key_origin(self, path: Path) -> Origin:
        """Return the place of the key whose value is at `path`."""
        ...


@frozen
class Nowhere:
    """The places of values that were not written in a file, such as the parameters of a request."""

    source: str
    """How the values are called."""
    layer: Layer = Layer.STAGE
    """The layer they belong to."""

    def origin(self, path: Path) -> Origin:
        """Return the path alone."""
        return Origin(layer=self.layer, source=self.source, path=path_text(path))

    def key_origin(self, path: Path) -> Origin:
        """Return the path alone."""
        return self.origin(path)


@frozen
class Relayered:
    """The same places, as those of another layer."""

    located: Located
    """Who knows the places."""
    layer: Layer
    """The layer they belong to here."""

    def origin(self, path: Path) -> Origin:
        """Return the place of the value at `path`."""
        return dataclasses.replace(self.located.origin(path), layer=self.layer)

    def key_origin(self, path: Path) -> Origin:
        """Return the place of the key whose value is at `path`."""
        return dataclasses.replace(self.located.key_origin(path), layer=self.layer)


@frozen
class Place:
    """Where a value stands and how messages call it."""

    located: Located
    """Who knows the places."""
    path: Path = ()
    """Path of the value."""
    label: str = ""
    """Its name in messages, such as `thinker.tp.size`."""
    is_key: bool = False
    """Whether the key itself is meant rather than its value."""

    @property
    def origin(self) -> Origin:
        """The place of the value."""
        return self.key_origin if self.is_key else self.located.origin(self.path)

    @property
    def key_origin(self) -> Origin:
        """The place of its key."""
        return self.located.key_origin(self.path)

    @property
    def name(self) -> str:
        """The label in backticks, cut at the front when it is long."""
        label = self.label or self.origin.source
        return quoted(label if len(label) <= _LABEL_LIMIT else "…" + label[1 - _LABEL_LIMIT :], 60)

    def below(self, path: Path) -> Origin:
        """Return the place of the member at `path` below here."""
        return self.located.origin((*self.path, *path))

    @property
    def as_key(self) -> Place:
        """The place of the key, for checking the key itself."""
        return dataclasses.replace(self, is_key=True)

    def layered(self, layer: Layer) -> Place:
        """Return the same place as one of another layer."""
        located = Relayered(located=self.located, layer=layer)
        return dataclasses.replace(self, located=located)

    def child(self, part: str | int, label: str | None = None) -> Place:
        """Return the place of a member; `label` replaces the name that follows from the path."""
        if label is None:
            step = f"[{part}]" if isinstance(part, int) else str(part)
            dot = "." if self.label and not isinstance(part, int) else ""
            label = f"{self.label}{dot}{step}"
        return Place(located=self.located, path=(*self.path, part), label=label)


class Run:
    """One walk: what it found, and whether it looks at one layer of several.

    In a layer alone members may be missing, and `null` clears any of them: that is `partial`.
    """

    __slots__ = ("findings", "partial")

    def __init__(self, *, partial: bool = False) -> None:
        """Start with nothing found."""
        self.findings: list[Diagnostic] = []
        self.partial = partial

    def tell(self, code: str, message: str, origin: Origin, help_text: str | None = None) -> Unset:
        """Add an error and return the mark of a value that failed."""
        self.findings.append(Diagnostic(code=code, message=message, origin=origin, help=help_text))
        return UNSET
