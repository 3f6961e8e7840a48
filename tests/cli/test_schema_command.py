"""`stagemesh schema`: what is committed below `schemas/`."""

from __future__ import annotations

import json

import jsonschema
import pytest

from stagemesh.cli._main import main
from stagemesh.cli.schema import KINDS
from stagemesh.config.jsonschema import SCHEMAS
from tests.architecture.source import ROOT


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_the_committed_file(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Byte for byte, with `--json` or without, and a schema indeed."""
    committed = (ROOT / "schemas" / f"{kind}.schema.json").read_text(encoding="utf-8")
    for arguments in (["schema", kind], ["schema", kind, "--json"]):
        assert main(arguments) == 0
        shown = capsys.readouterr()
        assert (shown.out == committed, shown.err) == (True, "")
    jsonschema.Draft202012Validator.check_schema(json.loads(committed))


def test_every_schema_can_be_asked_for() -> None:
    """The command knows the kinds without loading them."""
    assert set(KINDS) == set(SCHEMAS)
