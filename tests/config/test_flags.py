"""The table of flags: it is that of the schema, complete, and each flag has one owner."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

import stagemesh.config.flags
from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.fields import stage_fields
from stagemesh.config.flag_rules import (
    FIRST_CHOICE,
    GROUPS,
    NEGATIVE_SPELLINGS,
    NO_FLAG,
    ONE_STAGE_ONLY,
    SPELLINGS,
)
from stagemesh.config.flag_table import FILE, Flag, load_flags
from stagemesh.config.flags import flags_of, main
from stagemesh.config.given import Level, level_of, pipeline_fields, takes_flag
from stagemesh.config.inputs import GivenField
from stagemesh.config.schema import DeployFile
from stagemesh.config.scope import Scope
from stagemesh.config.settings import Settings
from stagemesh.config.stages import Stages
from tests.config.flagged import (
    INSTALLED,
    PIPELINES,
    python_loaded,
    typed,
)

FLAGS: Final = load_flags()
SAMPLES: Final = {
    "switch": True,
    "integer": ("2",),
    "integers": ("0", "1"),
    "number": ("0.5",),
    "object": ("{}",),
    "text": ("word",),
    "texts": ("a,b",),
}
COMPANIONS: Final = {
    "stage_id": ("omni_master_address", "omni_master_port"),
    "headless": ("stage_id", "omni_master_address", "omni_master_port"),
    "omni_replica_address": (
        "headless",
        "stage_id",
        "omni_master_address",
        "omni_master_port",
    ),
    "omni_dp_size_local": ("stage_id", "omni_master_address", "omni_master_port"),
    "omni_heartbeat_timeout": ("omni_master_address",),
    "omni_token_file": ("omni_master_address",),
    "omni_tls_cert": ("omni_master_address", "omni_tls_key", "omni_tls_ca"),
    "omni_tls_key": ("omni_master_address", "omni_tls_cert", "omni_tls_ca"),
    "omni_tls_ca": ("omni_master_address", "omni_tls_cert", "omni_tls_key"),
    "ray_address": ("worker_backend",),
    "omni_lb_policy": ("num_replicas",),
    "hsdp_replicate_size": ("use_hsdp",),
    "hsdp_shard_size": ("use_hsdp",),
}
"""What a flag needs beside it."""
VALUES: Final = {
    "default_sampling_params": ('{"front": {"temperature": 0.5}}',),
    "dtype": ("float16",),
    "stage_id": ("0",),
    "worker_backend": ("ray",),
}
"""Words for flags that do not take those of their form."""


def sample(flag: Flag) -> GivenField:
    """Return a flag with words that it takes."""
    words: object = VALUES.get(flag.field, SAMPLES[flag.form])
    if flag.choices and flag.field not in VALUES:
        words = (flag.choices[0],)
    return GivenField(name=flag.field, value=words, source=flag.spellings[0], is_typed=True)


def test_the_committed_table_is_that_of_the_schema(tmp_path: Path) -> None:
    """`--check` says so, and says what to do when it is not."""
    assert main(["--check"]) == 0
    written = tmp_path / "table.json"
    assert main(["--check", "--file", str(written)]) == 1
    assert main(["--file", str(written)]) == 0
    assert written.read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")
    assert main(["--check", "--file", str(written)]) == 0
    written.write_text("[]", encoding="utf-8")
    assert main(["--check", "--file", str(written)]) == 1


def test_the_module_is_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As `make schemas` runs it."""
    written = tmp_path / "table.json"
    monkeypatch.setattr(sys, "argv", ["flags", "--file", str(written)])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(stagemesh.config.flags.__file__, run_name="__main__")
    assert stopped.value.code == 0
    assert written.is_file()


def test_a_stale_table_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error."""
    main(["--check", "--file", str(tmp_path / "absent.json")])
    assert "is out of date: run `python -m stagemesh.config.flags`" in capsys.readouterr().err


def test_every_flag_is_spelled_once_and_every_field_has_one_owner() -> None:
    """P14: exactly one level, and no spelling means two things."""
    spelled = Counter(name for flag in FLAGS for name in (*flag.spellings, *flag.negative))
    assert [name for name, count in spelled.items() if count > 1] == []
    assert [name for name, count in Counter(f.field for f in FLAGS).items() if count > 1] == []
    fields = stage_fields(INSTALLED)
    scopes = [
        Scope(stages=Stages(pipeline=pipeline), fields=fields, catalog=INSTALLED)
        for pipeline in (None, *(model.pipeline for model in INSTALLED.models))
    ]
    for flag in FLAGS:
        levels = {level_of(flag.field, scope) for scope in scopes} - {None}
        assert levels == {Level(flag.level)}, flag.field


def test_every_field_has_a_flag_or_a_reason_to_have_none() -> None:
    """No field is forgotten."""
    flagged = {flag.field for flag in FLAGS}
    for name, field in stage_fields(INSTALLED).items():
        engines = [each for each in INSTALLED.engines.values() if each.default_for]
        options = {item.name for each in engines for item in dataclasses.fields(each.options)}
        is_public = isinstance(field.declared_by, type) is False or name in options
        if is_public and takes_flag(field):
            assert name in flagged
    missing = {item.name for item in dataclasses.fields(DeployFile)} - flagged
    assert missing.isdisjoint(pipeline_fields())
    assert set(NO_FLAG) <= {"base_config"} | {item.name for item in dataclasses.fields(DeployFile)}


def test_everything_that_is_declared_about_flags_names_a_flag() -> None:
    """No rule outlives its field."""
    flagged = {flag.field for flag in FLAGS}
    named = {*SPELLINGS, *NEGATIVE_SPELLINGS, *ONE_STAGE_ONLY, *FIRST_CHOICE}
    named |= {name for names in GROUPS.values() for name in names}
    assert named <= flagged


def test_every_flag_says_what_it_is_in_one_short_line() -> None:
    """No documentation, no flag."""
    for flag in FLAGS:
        assert flag.help, flag.field
        assert "\n" not in flag.help
        assert not flag.help.endswith(".")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """One folder for the checkpoint of each pipeline."""
    return {each.model_type: tmp_path_factory.mktemp("model") for each in PIPELINES}


@pytest.fixture(scope="module")
def untouched(folders: Mapping[str, Path]) -> Mapping[str, Settings | None]:
    """The settings of each pipeline when nothing is typed."""
    return {name: python_loaded(folder, name).settings for name, folder in folders.items()}


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.field)
def test_a_flag_changes_settings_when_it_is_typed_and_never_when_it_is_not(
    flag: Flag, folders: Mapping[str, Path], untouched: Mapping[str, Settings | None]
) -> None:
    """P08, P14: none is without an owner, and some pipeline takes it."""
    by_field = {each.field: each for each in FLAGS}
    given = [sample(flag), *(sample(by_field[name]) for name in COMPANIONS.get(flag.field, ()))]
    told = []
    for name, folder in folders.items():
        assert untouched[name] is not None
        assert flag.spellings[0] not in str(untouched[name])
        loaded = python_loaded(folder, name, *given)
        if loaded.settings is not None:
            assert loaded.settings != untouched[name]
            return
        told += [str(found) for found in loaded.diagnostics]
        assert "CF065" not in told[-1]
    pytest.fail("\n".join(told))


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.field)
def test_every_flag_is_parsed_with_the_spelling_that_was_typed(flag: Flag) -> None:
    """Each spelling gives the same field."""
    for spelling in (*flag.spellings, *flag.negative):
        words = [] if flag.form == "switch" else ["1"]
        (given,) = typed(["m", spelling, *words]).fields
        assert (given.name, given.source, given.is_typed) == (flag.field, spelling, True)
        assert given.value == (spelling not in flag.negative if not words else ("1",))


def test_a_name_that_only_a_pipeline_knows_has_a_flag_too() -> None:
    """Its form is that of the field that it means; a name that stages have anyway has one flag."""
    pipeline = dataclasses.replace(
        PIPELINES[0],
        stage_cli_aliases={"encoder_ranks": ("front", "seed"), "seed": ("mid", "seed")},
    )
    catalog = dataclasses.replace(INSTALLED, models=(Model(pipeline=pipeline, package="nowhere"),))
    found = {flag.field: flag for flag in flags_of(catalog)}
    assert (found["encoder_ranks"].form, found["encoder_ranks"].level) == ("integer", "stage")
    assert found["encoder_ranks"].kinds == ()
    assert len(found) == len(flags_of(catalog))


def test_an_option_that_no_flag_can_carry_has_none() -> None:
    """`--set` reaches it."""

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """One option of any type."""

        anything: object = None
        """Whatever."""

    ar = next(each for each in INSTALLED.engines.values() if each.default_for)
    engines = {**INSTALLED.engines, "odd": dataclasses.replace(ar, name="odd", options=Options)}
    catalog: Catalog = dataclasses.replace(INSTALLED, engines=engines)
    assert {flag.field for flag in flags_of(catalog)}.isdisjoint({"anything"})
