"""The third party's own tests: the conformance suites over its connector and its engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest

from stagemesh.spec.engine import Engine, EngineContext
from stagemesh.spec.payload import Payload
from stagemesh.spec.pipeline import NoOptions
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import CONNECTORS, ENGINES
from stagemesh.testing.connector_conformance import ConnectorConformance
from stagemesh.testing.engine_conformance import EngineCase, EngineConformance, joined_text
from stagemesh.testing.engine_context import engine_context

WORDS = ("candle", "lantern", "moon")


class MirrorCase:
    """Words that come back letter by letter."""

    num_variants = len(WORDS)

    def make(self) -> Engine:
        """Make an engine as a stage would."""
        [spec] = ENGINES.load("mirror")
        context = engine_context(NoOptions(), stage="caster")
        return cast("Callable[[EngineContext], Engine]", resolve(spec.factory))(context)

    def params(self, variant: int) -> Mapping[str, object]:
        """There are none."""
        del variant
        return {}

    def whole(self, variant: int) -> Payload:
        """A word."""
        return Payload(meta={"text": WORDS[variant]})

    def parts(self, variant: int) -> Sequence[Payload]:
        """A word in two parts."""
        word = WORDS[variant]
        return [Payload(meta={"text": part}) for part in (word[:2], word[2:])]

    def bad(self) -> Sequence[tuple[Mapping[str, object], Payload]]:
        """An input without text."""
        return [({}, Payload())]

    def value(self, payloads: Sequence[Payload]) -> object:
        """The word again."""
        return joined_text(payloads)


class TestMirror(EngineConformance):
    """The engine keeps the contract of engines."""

    @pytest.fixture
    def case(self) -> EngineCase:
        """Words."""
        return MirrorCase()


class TestPocket(ConnectorConformance):
    """The connector keeps the contract of connectors."""

    (spec,) = CONNECTORS.load("pocket")
    options = NoOptions()
