"""Edges in deploy files: settings of those that the pipeline has."""

from __future__ import annotations

import dataclasses

import pytest

from stagemesh.config.settings import EdgeSettings
from stagemesh.spec.origin import Layer, Origin
from tests.config.deploying import CATALOG, PIPELINE, Show
from tests.config.speech import told


def test_edges_are_named_by_numbers_or_names(show: Show) -> None:
    """And keep their settings and their place."""
    show.write(
        {
            "deploy.yaml": "edges:\n- {from: thinker, to: 1, connector: a, window_size: -1}\n"
            "- {from: 1, to: code2wav, max_inflight: 2}\n"
        }
    )
    loaded = show.load()
    assert told(loaded) == []
    assert loaded.settings is not None
    place = Origin(layer=Layer.DEPLOY, source="")
    first = EdgeSettings(
        source=0, target=1, connector="a", window_size=-1, max_inflight=None, origin=place
    )
    second = EdgeSettings(
        source=1, target=2, connector=None, window_size=None, max_inflight=2, origin=place
    )
    assert loaded.settings.edges == (first, second)
    assert [str(edge.origin) for edge in loaded.settings.edges] == [
        "deploy.yaml:2:3",
        "deploy.yaml:3:3",
    ]
    show.write({"over.yaml": "base_config: deploy.yaml\nedges: ~\n"})
    loaded = show.load("over.yaml")
    assert loaded.settings is not None
    assert loaded.settings.edges == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "CF012 deploy.yaml:1:8: `edges` must be a list of edges, got a mapping"),
        ("[a]", "CF012 deploy.yaml:1:9: `edges[0]` must be a mapping with `from` and `to`"),
        ("[{to: 1}]", "CF011 deploy.yaml:1:9: `edges[0].from` is missing"),
        ("[{from: 0}]", "CF011 deploy.yaml:1:9: `edges[0].to` is missing"),
        ("[{form: 0, to: 1}]", "CF010 deploy.yaml:1:10: unknown key `form` in `edges[0]`"),
        ("[{from: true, to: 1}]", "CF012 deploy.yaml:1:16: `edges[0].from` must be the number or"),
        ("[{from: 9, to: 1}]", "CF020 deploy.yaml:1:16: no stage `9` in this pipeline"),
        ("[{from: thinkr, to: 1}]", "CF020 deploy.yaml:1:16: no stage `thinkr` in this pipeline"),
        ("[{from: 0, to: 2}]", "CF034 deploy.yaml:1:9: no edge `0 -> 2` in this pipeline"),
        (
            "[{from: 0, to: 1}, {from: thinker, to: talker}]",
            "CF035 deploy.yaml:1:27: edge `0 -> 1` is given twice",
        ),
        ("[{from: 0, to: 1, windw: 1}]", "CF010 deploy.yaml:1:26: unknown key `windw` in `edges"),
        ("[{from: 0, to: 1, max_inflight: 0}]", "CF013 deploy.yaml:1:40: `edges[0].max_inflight`"),
        ("[{from: 0, to: 1, window_size: 1.0}]", "CF012 deploy.yaml:1:39: `edges[0].window_size`"),
        ("[{from: !x 0, to: 1}]", "CF005 deploy.yaml:1:16: tag `!x` is not supported"),
    ],
)
def test_a_wrong_edge_is_told_once(show: Show, text: str, expected: str) -> None:
    """Which edges there are is the pipeline's affair."""
    show.write({"deploy.yaml": f"edges: {text}"})
    (found,) = told(show.load())
    assert found.startswith(expected)


def test_a_missing_edge_is_answered_with_those_that_exist(show: Show) -> None:
    """A pipeline of one stage has none."""
    (found,) = show.load({"edges": [{"from": 3, "to": 0}]}).diagnostics
    assert found.help == "edges of `show`: `0 -> 1`, `0 -> 3`, `1 -> 2`"
    alone = dataclasses.replace(PIPELINE, stages=PIPELINE.stages[:1])
    alone = dataclasses.replace(
        alone,
        stages=(dataclasses.replace(alone.stages[0], final_output=True, final_output_type="x"),),
    )
    models = (dataclasses.replace(CATALOG.models[0], pipeline=alone),)
    catalog = dataclasses.replace(CATALOG, models=models)
    (found,) = show.load({"edges": [{"from": 0, "to": 0}]}, catalog=catalog).diagnostics
    assert found.help == "edges of `show`: none"
