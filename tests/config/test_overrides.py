"""What is typed for one start: stages by id or name, and flags for all of them."""

from __future__ import annotations

import pytest

from stagemesh.spec.diagnostic import Severity
from stagemesh.spec.origin import Layer
from stagemesh.spec.unset import UNSET
from tests.config.speech import Speech, flag, size, stage, told, value


def test_stages_are_given_by_id_or_by_name(speech: Speech) -> None:
    """JSON text and mappings are the same."""
    text = '{"0": {"devices": "0,1"}, "talker": {"max_num_seqs": 3}}'
    loaded = speech.load(overrides=text)
    assert value(loaded, "thinker", "devices") == "0,1"
    assert value(loaded, "talker", "max_num_seqs") == 3
    origin = stage(loaded, "talker").fields["max_num_seqs"].origin
    assert (str(origin), origin.path) == ("--stage-overrides", "talker.max_num_seqs")
    assert origin.layer is Layer.STAGE
    loaded = speech.load(overrides={"0": {"devices": "0,1"}})
    assert str(stage(loaded, "thinker").fields["devices"].origin) == "stage_overrides"


def test_an_override_wins_over_the_file_and_remembers_it(speech: Speech) -> None:
    """T47: also a value that equals a default; the replaced value stays visible."""
    loaded = speech.load(
        deploy="stages: [{stage_id: 0, max_num_seqs: 8}]", overrides='{"0": {"max_num_seqs": 4}}'
    )
    given = stage(loaded, "thinker").fields["max_num_seqs"]
    assert given.value == 4
    assert [(item.value, str(item.origin)) for item in given.superseded] == [
        (8, "deploy.yaml:1:38")
    ]
    assert told(loaded) == []


def test_null_clears_what_the_file_said(speech: Speech) -> None:
    """A field, a member of a mapping and the size of an axis can be taken back."""
    loaded = speech.load(
        deploy="stages: [{stage_id: 0, max_num_seqs: 8, env: {A: a, B: b}, num_replicas: 2}]",
        overrides='{"0": {"max_num_seqs": null, "env": {"A": null}, "num_replicas": null}}',
    )
    assert told(loaded) == []
    assert value(loaded, "thinker", "max_num_seqs") is UNSET
    assert value(loaded, "thinker", "env") == {"B": "b"}
    assert size(loaded, "thinker", "stage_replica") is UNSET


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1]", "CF004 --stage-overrides: expected a mapping from stages to fields, got a list"),
        ("{", "CF002 --stage-overrides:1:2: not valid JSON: expecting property name"),
        ('{"0": {}, "0": {}}', "CF003 --stage-overrides: key `0` is given twice"),
        ('{"0": 3}', "CF012 --stage-overrides: `thinker` must be a mapping of stage fields, got"),
        ('{"0": null}', "CF012 --stage-overrides: `thinker` must be a mapping of stage fields"),
        ('{"9": {}}', "CF020 --stage-overrides: no stage `9` in this pipeline"),
        ('{"00": {}}', "CF020 --stage-overrides: no stage `00` in this pipeline"),
        ('{"\u0660": {}}', "CF020 --stage-overrides: no stage `\u0660` in this pipeline"),
        (f'{{"{"9" * 5000}": {{}}}}', "CF020 --stage-overrides: no stage `9999"),
        ('{"stages": [{"stage_id": 0}]}', "CF020 --stage-overrides: no stage `stages` in this"),
        ('{"tlker": {}}', "CF020 --stage-overrides: no stage `tlker` in this pipeline"),
        (
            '{"0": {}, "thinker": {"devices": "x"}}',
            "CF021 --stage-overrides: stage `thinker` is given twice, by id and by name",
        ),
        (
            '{"0": {"device": "0"}}',
            "CF010 --stage-overrides: unknown key `device` in `thinker`",
        ),
        ('{"0": {"stage_id": 0}}', "CF010 --stage-overrides: unknown key `stage_id` in `thinker`"),
        (
            '{"0": {"num_replicas": true}}',
            "CF012 --stage-overrides: `thinker.num_replicas` must be a whole number, got `true`",
        ),
        ('{"0": {"runtime": {"devices": "0"}}}', "CF023 --stage-overrides: `runtime` is not nest"),
    ],
)
def test_each_mistake_is_told_once(speech: Speech, text: str, expected: str) -> None:
    """Nothing that was typed is ignored."""
    loaded = speech.load(overrides=text)
    (found,) = told(loaded)
    assert found.startswith(expected)
    assert loaded.settings is None


def test_a_number_for_a_stage_shows_how_to_write_it(speech: Speech) -> None:
    """In Python a key may be a number by mistake."""
    loaded = speech.load(overrides={0: {"devices": "0"}})  # type: ignore[dict-item]
    (found,) = loaded.diagnostics
    assert found.message == "stage `0` must be given as text"
    assert str(found.help).startswith('write `"0"`; stages of `speech`')


def test_a_misspelt_stage_is_led_to_the_nearest(speech: Speech) -> None:
    """Names are listed with their ids."""
    (found,) = speech.load(overrides='{"tlker": {}}').diagnostics
    assert str(found.help).startswith("did you mean `talker`? stages of `speech`: `thinker` (0),")


def test_the_flag_for_chunks_wins_over_the_file(speech: Speech) -> None:
    """Its origin is the flag as it was typed."""
    for on, name in ((True, "--async-chunk"), (False, "--no-async-chunk")):
        typed = flag("async_chunk", on, name)
        loaded = speech.load(deploy=f"async_chunk: {not on}", fields=(typed,))
        assert loaded.settings is not None
        given = loaded.settings.fields["async_chunk"]
        assert (given.value, given.origin.source, given.origin.layer) == (on, name, Layer.GLOBAL)


def test_a_flag_of_another_type_is_an_error(speech: Speech) -> None:
    """Python callers get a diagnostic, too."""
    loaded = speech.load(fields=(flag("async_chunk", "yes"),))
    assert told(loaded) == [
        "CF012 --async-chunk: `async_chunk` must be `true` or `false`, got text `yes`"
    ]


def test_warnings_leave_the_settings_usable(speech: Speech) -> None:
    """T12: an override of a strategy wins, with both places."""
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: stage_replica, size: 2}]}",
        overrides='{"thinker": {"num_replicas": 3}}',
    )
    assert size(loaded, "thinker", "stage_replica") == 3
    (found,) = loaded.diagnostics
    assert found.severity is Severity.WARNING
    assert found.message == (
        "`thinker.stage_replica.size` of the strategy, `2`, is replaced by `3`"
    )
    assert str(found.origin) == "--stage-overrides"
    assert str(found.notes[0].origin) == "strategy.yaml:1:52"
