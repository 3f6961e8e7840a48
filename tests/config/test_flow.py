"""What a remedy says to write can be written as it stands."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.document import Source, read_yaml
from stagemesh.config.flow import HIDDEN, flow_text
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Layer
from tests.config.deploying import Show


def back(text: str) -> object:
    """Read the value of a mapping on one line."""
    findings: list[Diagnostic] = []
    document = read_yaml(f"{{a: {text}}}", Source(name="f", layer=Layer.DEPLOY), findings)
    assert document is not None, findings
    return document.value["a"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0,1", '"0,1"'),
        ("0", '"0"'),
        ("true", '"true"'),
        ("on", '"on"'),
        ("010", '"010"'),
        ("", '""'),
        ("TORCH_SDPA", "TORCH_SDPA"),
        ("/a/b", "/a/b"),
        ("it's", "it's"),
        ('"so"', '"\\"so\\""'),
        ("a: b", '"a: b"'),
        ("a`b", HIDDEN),
        ("a\u200bb", HIDDEN),
        ("x" * 41, HIDDEN),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (0.5, "0.5"),
    ],
)
def test_text_is_quoted_where_it_would_be_something_else(value: object, text: str) -> None:
    """And hidden where a message could not show it."""
    assert flow_text(value) == text
    assert text == HIDDEN or back(text) == value


@given(st.text(max_size=44))
def test_whatever_is_shown_is_read_as_the_same(value: str) -> None:
    """Between the braces of a mapping on one line, where commas and colons mean something."""
    text = flow_text(value)
    assert text == HIDDEN or back(text) == value


@pytest.mark.parametrize(
    ("text", "offer"),
    [
        ('devices: "0,1"', 'devices: "0,1"'),
        ("devices: 1", 'devices: "1"'),
        ("devices: [0, 1]", 'devices: "0,1"'),
        ('attention_backend: "8"', 'attention_backend: "8"'),
        ('stages: [{stage_id: 0, runtime: {devices: "0"}}]', 'devices: "0"'),
        ("stages: [{stage_id: 0, runtime: {devices: 1, num_replicas: 1}}]", 'devices: "1"'),
    ],
)
def test_an_offer_for_a_stage_is_taken_as_it_stands(show: Show, text: str, offer: str) -> None:
    """Of a field at the root, or of a mapping of an older layout."""
    show.write({"deploy.yaml": text})
    (found,) = show.load().diagnostics
    offers = re.findall("`([^`]+)`", str(found.help))
    assert f"stages: [{{stage_id: 0, {offer}}}]" in offers or offer in offers
    show.write({"deploy.yaml": f"stages: [{{stage_id: 0, {offer}}}]"})
    assert show.load().diagnostics == ()


def test_a_name_is_quoted_too(show: Show) -> None:
    """Names of an older layout are anybody's."""
    show.write({"deploy.yaml": 'stages: [{stage_id: 0, engine_args: {"a: b": 1, "c`": 2}}]'})
    (found,) = show.load().diagnostics
    assert str(found.help).endswith('`"a: b": 1`, `...: 2`')


def test_what_was_refused_is_not_shown(show: Show) -> None:
    """Its own message says what it must be."""
    show.write({"deploy.yaml": "stages: [{stage_id: 0, engine_args: {seed: 010}}]"})
    refused, nested = show.load().diagnostics
    assert (refused.code, nested.code) == ("CF005", "CF023")
    assert str(nested.help).endswith("in the entry of the stage: `seed: ...`")
