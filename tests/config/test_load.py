"""The way through: worked examples, all mistakes at once, and nothing that ever raises."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagemesh.config.catalog import Catalog
from stagemesh.config.inputs import PlanInputs
from stagemesh.config.load import load
from stagemesh.spec.unset import UNSET
from tests.config.speech import CATALOG, Speech, flag, size, stage, told, value

EXAMPLE_DEVICES = '{"0": {"devices": "0,1"}, "1": {"devices": "2"}, "2": {"devices": "2"}}'


def test_worked_example_1_reads_as_printed(speech: Speech) -> None:
    """T9: tp 2 on the thinker, devices from overrides on top of the model's own file."""
    loaded = speech.load(
        strategy="strategies:\n  thinker:\n    - axis: tp\n      size: 2\n",
        deploy=UNSET,
        overrides=EXAMPLE_DEVICES,
    )
    assert told(loaded) == []
    assert size(loaded, "thinker", "tp") == 2
    assert [value(loaded, name, "devices") for name in ("thinker", "talker", "code2wav")] == [
        "0,1",
        "2",
        "2",
    ]
    assert stage(loaded, "talker").axes == stage(loaded, "code2wav").axes == {}


def test_worked_example_2_reads_as_printed(speech: Speech) -> None:
    """T10: two replicas, in turn."""
    loaded = speech.load(
        strategy="strategies:\n"
        "  thinker:\n"
        "    - axis: stage_replica\n"
        "      size: 2\n"
        "      routing: round_robin\n",
        deploy=UNSET,
        overrides=EXAMPLE_DEVICES,
    )
    assert told(loaded) == []
    axis = stage(loaded, "thinker").axes["stage_replica"]
    assert axis.size is not None
    assert axis.routing is not None
    assert (axis.size.value, axis.routing.value.value) == (2, "round_robin")


def test_every_stage_has_settings_in_the_order_of_ids(speech: Speech) -> None:
    """Also those that no file mentions."""
    loaded = speech.load()
    assert loaded.settings is not None
    assert [(item.stage_id, item.name) for item in loaded.settings.stages] == [
        (0, "thinker"),
        (1, "talker"),
        (2, "code2wav"),
    ]


def test_the_order_of_entries_changes_nothing(speech: Speech) -> None:
    """Equality looks at values, not at places."""
    one = speech.load(
        strategy="strategies:\n  thinker: [{axis: tp, size: 2}, {axis: pp, size: 2}]\n"
        "  talker: [{axis: dp, size: 2}]\n"
    )
    two = speech.load(
        strategy="strategies:\n  talker: [{size: 2, axis: dp}]\n"
        "  thinker: [{axis: pp, size: 2}, {axis: tp, size: 2}]\n"
    )
    assert one.settings == two.settings


def test_all_mistakes_of_all_files_are_told_at_once(speech: Speech) -> None:
    """Deploy file, strategy, overrides, flag and checkpoint in one go."""
    speech.configure({"model_type": "unknown"})
    loaded = speech.load(
        strategy="strategies: {thinker: [{axis: tp, size: 0}, {axis: tq, size: 1}]}",
        deploy="async_chunk: 3\nstages: [{stage_id: 9, devices: 0}]",
        overrides='{"7": {"num_replicas": "x"}}',
        fields=(flag("async_chunk", "3"),),
    )
    assert [found.partition(":")[0] for found in told(loaded)] == [
        f"MD008 {speech.checkpoint}/config.json",
        "CF012 deploy.yaml",
        "CF012 deploy.yaml",
        "CF013 strategy.yaml",
        "AX001 strategy.yaml",
        "CF012 --stage-overrides",
        "CF012 --async-chunk",
    ]
    assert "stages[0].devices" in told(loaded)[2]
    assert [document.source for document in loaded.documents] == [
        "strategy.yaml",
        "deploy.yaml",
        "--stage-overrides",
    ]


def test_stages_are_not_looked_up_in_an_unknown_model(speech: Speech) -> None:
    """A missing checkpoint is one cause; it does not make stage names wrong."""
    speech.configure({"model_type": "unknown"})
    loaded = speech.load(
        strategy="strategies: {anything: [{axis: tp, size: 2}], 0: []}",
        deploy="stages: [{stage_id: 5}, {}]",
        overrides='{"5": {}, "x": {}}',
    )
    assert [found.code for found in loaded.diagnostics] == ["MD008", "CF011", "CF022"]
    assert loaded.diagnostics[1].help == "stages are those of the model, numbered from `0`"


def test_a_file_that_cannot_be_read_leaves_the_others_checked(speech: Speech) -> None:
    """Paths are shown as they were given."""
    loaded = load(
        PlanInputs(
            model="model",
            strategy_config="no/such.yaml",
            deploy_config=Path("model"),
            stage_overrides="{",
        ),
        CATALOG,
    )
    assert [found.partition(": ")[0] for found in told(loaded)] == [
        "CF001 no/such.yaml",
        "CF001 model",
        "CF002 --stage-overrides:1:2",
    ]
    assert loaded.pipeline is not None
    assert (loaded.settings, loaded.documents) == (None, ())
    assert speech.checkpoint.is_dir()


def test_what_is_installed_is_used_when_no_catalog_is_given(tmp_path: Path) -> None:
    """The registry finds axes, engines, connectors and models."""
    loaded = load(PlanInputs(model=str(tmp_path), deploy_config={}))
    assert [found.code for found in loaded.diagnostics] == ["MD003"]
    installed = Catalog.installed()
    assert set(CATALOG.axes) == set(installed.axes)
    assert all(model.package.startswith("stagemesh.models.") for model in installed.models)


WORDS = st.sampled_from(
    [
        "strategies",
        "stages",
        "stage_id",
        "thinker",
        "talker",
        "axis",
        "size",
        "routing",
        "l1_owner",
        "name",
        "tp",
        "dp",
        "ep",
        "stage_replica",
        "connectors",
        "extra",
        "async_chunk",
        "pipeline",
        "devices",
        "env",
        "num_replicas",
        "tuning",
        "level",
        "hash",
        "engine",
        "default_sampling_params",
        "enable_expert_parallel",
        "speech",
        "Pipe",
        "runtime",
        "0",
        "<<",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 5) | st.floats() | WORDS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.integers(0, 3) | st.booleans(), inner, max_size=5)
    ),
    max_leaves=25,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(VALUES, VALUES, VALUES)
def test_no_value_makes_it_raise(
    speech: Speech, strategy: object, deploy: object, overrides: object
) -> None:
    """Random files give settings or errors that stand on one short line."""
    loaded = speech.load(
        strategy=yaml.safe_dump({"strategies": strategy}),
        deploy=yaml.safe_dump(deploy),
        overrides=overrides,  # type: ignore[arg-type]
    )
    assert (loaded.settings is None) == any(found.is_error for found in loaded.diagnostics)
    for found in loaded.diagnostics:
        assert found.origin is not None
        assert re.fullmatch(r"[^\n]{1,120}", found.message)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_no_text_makes_it_raise(speech: Speech, text: str | bytes) -> None:
    """Random bytes in a file, and random text as JSON."""
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    (speech.folder / "random.yaml").write_bytes(content)
    loaded = load(
        PlanInputs(
            model="model",
            strategy_config="random.yaml",
            deploy_config=Path("random.yaml"),
            stage_overrides=str(text),
        ),
        CATALOG,
    )
    assert any(found.is_error for found in loaded.diagnostics)


@pytest.mark.parametrize("given_input", [5, ["a"], None])
def test_an_argument_of_another_type_is_told(speech: Speech, given_input: object) -> None:
    """Python callers are users as well."""
    loaded = load(
        PlanInputs(model="model", strategy_config=given_input),  # type: ignore[arg-type]
        CATALOG,
    )
    assert [found.code for found in loaded.diagnostics] == ["CF004"]
    assert speech.checkpoint.is_dir()
