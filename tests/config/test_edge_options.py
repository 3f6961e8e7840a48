"""`extra` of a connector: its own options, and those that the model has for its edges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import pytest

from stagemesh.config.catalog import Model
from stagemesh.config.settings import ConnectorSettings
from stagemesh.spec.bounds import Range
from tests.config.speech import CATALOG, PIPELINE, ConnectorOptions, Speech, told


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Options of the edge that leaves the thinker."""

    chunk_frames: Annotated[int, Range(minimum=1)] = 25
    """Frames of a chunk."""
    first: bool = False
    """Whether the first frame goes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Options of the edge that leaves the talker."""

    chunk_frames: Annotated[int, Range(minimum=1)] | str = "all"
    """Frames of a chunk, or `all`."""


MODEL = replace(
    PIPELINE,
    stages=(
        replace(PIPELINE.stages[0], edge_options=Codec),
        replace(PIPELINE.stages[1], edge_options=Wave),
        replace(PIPELINE.stages[2], edge_options=Codec),
    ),
)
KNOWN = replace(CATALOG, models=(Model(pipeline=MODEL, package="tests.config.shipped"),))
BASE = "connectors:\n  shm:\n    name: Pipe\n    extra: {slots: 3, chunk_frames: 15}\n"


def connector(speech: Speech, deploy: str) -> ConnectorSettings:
    """Load the one connector of a deploy file."""
    loaded = speech.load(deploy=deploy, catalog=KNOWN)
    assert loaded.settings is not None, told(loaded)
    [found] = loaded.settings.connectors.values()
    return found


def test_options_of_the_connector_and_of_the_model_are_told_apart(speech: Speech) -> None:
    """Each of the model's keeps its place."""
    found = connector(speech, BASE)
    assert found.options == ConnectorOptions(slots=3)
    given = {name: (each.value, str(each.origin)) for name, each in found.edge_options.items()}
    assert given == {"chunk_frames": (15, "deploy.yaml:4:37")}


def test_a_connector_without_extra_has_defaults(speech: Speech) -> None:
    """Both kinds."""
    found = connector(speech, "connectors: {shm: {name: Pipe}}")
    assert (found.options, found.edge_options) == (ConnectorOptions(), {})


def test_a_value_that_one_of_the_stages_takes_is_kept(speech: Speech) -> None:
    """Which edges are carried is not known yet."""
    found = connector(speech, "connectors: {shm: {name: Pipe, extra: {chunk_frames: all}}}")
    assert found.edge_options["chunk_frames"].value == "all"


@pytest.mark.parametrize(
    ("extra", "message", "remedy"),
    [
        (
            "{chunk_frame: 1}",
            "CF010 deploy.yaml:1:53: unknown key `chunk_frame` in `connectors.shm.extra`",
            "did you mean `chunk_frames`? allowed here: `chunk_frames`, `first`, `slots`",
        ),
        (
            "{chunk_frames: 0}",
            "CF013 deploy.yaml:1:54: `connectors.shm.extra.chunk_frames` must be `>= 1`, got `0`",
            "None",
        ),
        (
            "{first: 1}",
            (
                "CF012 deploy.yaml:1:47: `connectors.shm.extra.first` must be `true` or `false`,"
                " got `1`"
            ),
            "None",
        ),
        (
            "{slots: 0}",
            "CF013 deploy.yaml:1:47: `connectors.shm.extra.slots` must be `>= 1`, got `0`",
            "None",
        ),
    ],
)
def test_what_nobody_takes_is_told(speech: Speech, extra: str, message: str, remedy: str) -> None:
    """With the names of both."""
    deploy = f"connectors: {{shm: {{name: Pipe, extra: {extra}}}}}"
    loaded = speech.load(deploy=deploy, catalog=KNOWN)
    assert told(loaded) == [message]
    assert str(loaded.diagnostics[0].help) == remedy
