"""Text that is written as YAML is text to every reader."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from stagemesh.config.document import Findings, Source, read_yaml
from stagemesh.plan.export.dump import yaml_text
from stagemesh.spec.origin import Layer

ODD = ("010", "09", "1_000", "1:30", "1e3", "0o10", "0b11", "0x1F", ".5", "1.", ".inf", ".NaN")
WORDS = ("yes", "No", "on", "off", "y", "n", "true", "NULL", "~", "", "=", "<<", "2024-01-02")


@given(
    st.lists(st.sampled_from([*ODD, *WORDS]) | st.text("01_:.exo+-~ynf", max_size=6), max_size=8)
)
def test_text_stays_text_for_readers_of_both_versions(texts: list[str]) -> None:
    """As a value and as a key, also where only one version takes it for something else."""
    said: dict[str, object] = {"values": tuple(texts), "keys": dict.fromkeys(texts, 1)}
    written = yaml_text(said)
    findings: Findings = []
    document = read_yaml(written, Source(name="x", layer=Layer.DEPLOY), findings)
    assert findings == []
    assert document is not None
    assert document.value == said
    assert yaml.safe_load(written) == {**said, "values": texts}
