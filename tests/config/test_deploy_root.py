"""The root of deploy files: values for every stage, and keys that belong elsewhere."""

from __future__ import annotations

import dataclasses

import pytest

from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.unset import UNSET
from tests.config.deploying import CATALOG, PIPELINE, Show, chain, said, values
from tests.config.speech import told


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("trust_remote_code: true", "trust_remote_code", [True] * 4),
        ("distributed_executor_backend: ray", "distributed_executor_backend", ["ray"] * 4),
        ("quantization: fp8", "quantization", ["fp8"] * 4),
        ("enable_prefix_caching: false", "enable_prefix_caching", [False] * 3 + [UNSET]),
        ("enable_chunked_prefill: true", "enable_chunked_prefill", [True] * 3 + [UNSET]),
        ("custom_voice_dir: /v", "custom_voice_dir", ["/v"] * 3 + [UNSET]),
        ("data_parallel_size: 2", "axes.dp.size", [2] * 4),
        ("pipeline_parallel_size: 2", "axes.pp.size", [2, 2, UNSET, 2]),
    ],
)
def test_a_value_of_the_root_reaches_every_stage_that_it_fits(
    show: Show, text: str, path: str, expected: list[object]
) -> None:
    """Stages whose kind has the field, or that the axis fits; as a value of its own layer."""
    show.write({"deploy.yaml": text})
    if path == "axes.pp.size":
        kinds = CATALOG.axes["pp"].fits
        expected = [2 if stage.execution_type in kinds else UNSET for stage in PIPELINE.stages]
    assert values(show, path) == expected


def test_a_value_of_the_root_fills_only_what_no_file_says(show: Show) -> None:
    """Also an engine option, an entry of a lower file and one of the platform count as said."""
    show.write(
        {
            "base.yaml": "stages:\n- {stage_id: 0, quantization: a, data_parallel_size: 3}\n"
            "platforms: {cpu: {stages: [{stage_id: 3, quantization: d}]}}\n",
            "deploy.yaml": "base_config: base.yaml\nquantization: z\ndata_parallel_size: 2\n"
            "stages:\n- {stage_id: 1, engine_extras: {quantization: b}}\n"
            "- {stage_id: 2, quantization: ~}\n",
        }
    )
    assert values(show, "quantization", platform="cpu") == ["a", "b", UNSET, "d"]
    assert values(show, "axes.dp.size") == [3, 2, 2, 2]
    given = said(show.load(), "talker", "quantization")
    assert given is not UNSET
    assert chain(given) == [("b", "deploy.yaml:5:47"), ("z", "deploy.yaml:2:15")]


def test_null_at_the_root_takes_back_what_a_lower_root_says(show: Show) -> None:
    """As everywhere."""
    show.write(
        {"base.yaml": "quantization: a", "deploy.yaml": "base_config: base.yaml\nquantization: ~"}
    )
    assert values(show, "quantization") == [UNSET] * 4


def test_a_value_that_no_stage_takes_is_an_error(show: Show) -> None:
    """It names who would."""
    painter = dataclasses.replace(PIPELINE.stages[3], stage_id=0, input_sources=())
    alone = dataclasses.replace(PIPELINE, stages=(painter,))
    models = (dataclasses.replace(CATALOG.models[0], pipeline=alone),)
    show.write({"deploy.yaml": "custom_voice_dir: /v"})
    loaded = show.load(catalog=dataclasses.replace(CATALOG, models=models))
    assert told(loaded) == ["CF031 deploy.yaml:1:1: no stage of `show` has a `custom_voice_dir`"]
    assert loaded.diagnostics[0].help == (
        "it is a field of `llm_ar`, `llm_generation` stages; leave it out"
    )


def test_a_wrong_value_at_the_root_is_told_once(show: Show) -> None:
    """Not once for every stage; what the source refused is not told again."""
    show.write({"deploy.yaml": "data_parallel_size: 0"})
    assert told(show.load()) == [
        "CF013 deploy.yaml:1:21: `data_parallel_size` must be `>= 1`, got `0`"
    ]
    show.write({"deploy.yaml": "dtype: !x 0"})
    assert told(show.load()) == ["CF005 deploy.yaml:1:8: tag `!x` is not supported"]


def test_a_strategy_meets_a_value_of_the_root_as_any_other(show: Show) -> None:
    """Two explicit sizes of one axis are an error, whichever part of the file says one."""
    show.write({"deploy.yaml": "data_parallel_size: 2"})
    strategy = {"strategies": {"talker": [{"axis": "dp", "size": 4}]}}
    (found,) = show.load(strategy_config=strategy).diagnostics
    assert (found.code, str(found.notes[0].origin)) == ("AX006", "deploy.yaml:1:21")


@pytest.mark.parametrize(
    ("text", "expected", "help_text"),
    [
        (
            "attention_backend: TORCH_SDPA",
            "CF024 deploy.yaml:1:1: `attention_backend` is a field of a stage",
            "`stages: [{stage_id: 0, attention_backend: TORCH_SDPA}]`",
        ),
        (
            "vae_use_tiling: true",
            "CF024 deploy.yaml:1:1: `vae_use_tiling` is a field of a stage",
            "`stages: [{stage_id: 3, vae_use_tiling: true}]`",
        ),
        (
            "gpu_memory_utilization: 0.5",
            "CF024 deploy.yaml:1:1: `gpu_memory_utilization` is a field of a stage",
            "write it in the entry of a stage",
        ),
        (
            "weight_transfer_confg: {}",
            "CF010 deploy.yaml:1:1: unknown key `weight_transfer_confg` in `deploy.yaml`",
            "did you mean `weight_transfer_config`?",
        ),
        (
            "enable_prefix_cachin: true",
            "CF010 deploy.yaml:1:1: unknown key `enable_prefix_cachin` in `deploy.yaml`",
            "did you mean `enable_prefix_caching`?",
        ),
        (
            "hf_architectures: [a]",
            "CF026 deploy.yaml:1:1: `hf_architectures` is no setting: the pipeline holds the topol",
            "`pipeline:` at the root of the file chooses another pipeline",
        ),
        (
            "engine_args: {a: 1}",
            "CF023 deploy.yaml:1:1: `engine_args` is not nested here",
            "`a: 1`",
        ),
        (
            "stages: [{stage_id: 0, session_mode: duplex}]",
            "CF025 deploy.yaml:1:24: `session_mode` is a field of the whole pipeline",
            "write it at the root of the deploy file",
        ),
        (
            "stages: [{stage_id: 0, stages: []}]",
            "CF025 deploy.yaml:1:24: `stages` is a field of the whole pipeline",
            "",
        ),
        *(
            (
                f"stages: [{{stage_id: 0, {key}: 1}}]",
                f"CF026 deploy.yaml:1:24: `{key}` is no setting: the pipeline holds the topology",
                "leave it out",
            )
            for key in ("final_output", "input_sources", "model_stage", "execution_type")
        ),
        (
            "stages: [{stage_id: 0, default_pooling_params: {a: 1}}]",
            "CF028 deploy.yaml:1:24: `default_pooling_params` has no effect on any stage",
            "no kind of stage pools embeddings; leave it out",
        ),
        (
            "stages: [{stage_id: 0, engine_extras: [a]}]",
            "CF012 deploy.yaml:1:39: `thinker.engine_extras` must be a mapping of options",
            "",
        ),
        (
            "stages: [{stage_id: 0, engine_extras: {share: 2}}]",
            "CF013 deploy.yaml:1:47: `thinker.engine_extras.share` must be `0 to 1`, got `2.0`",
            "",
        ),
        (
            "stages: [{stage_id: 0, engine_extras: {final_output: true}}]",
            "CF026 deploy.yaml:1:40: `final_output` is no setting: the pipeline holds the topology",
            "",
        ),
        (
            "stages: [{stage_id: 0, engine_extras: {model_config: {a: 1}}}]",
            "CF023 deploy.yaml:1:40: `model_config` is not nested here",
            "",
        ),
        ("session_mode: both", "CF013 deploy.yaml:1:15: `session_mode` does not take `both`", ""),
        ("active_stream_window: -1", "CF013 deploy.yaml:1:23: `active_stream_window` must be", ""),
        ("active_stream_window: 1.0", "CF012 deploy.yaml:1:23: `active_stream_window` must be", ""),
        ("cuda_mps: 1", "CF012 deploy.yaml:1:11: `cuda_mps` must be `true` or `false`", ""),
        (
            "weight_transfer_config: 1",
            "CF012 deploy.yaml:1:25: `weight_transfer_config` must be",
            "",
        ),
        (
            "duplex_session: {max_session: 1}",
            "CF010 deploy.yaml:1:18: unknown key `max_sess",
            "`max_",
        ),
        (
            "duplex_session: {replica_groups: [{a: 0}]}",
            "CF013 deploy.yaml:1:36: `duplex_session.replica_groups[0].a` must be like `0`",
            "keys are numbers of stages",
        ),
    ],
)
def test_a_key_in_the_wrong_place_is_told_with_the_right_one(
    show: Show, text: str, expected: str, help_text: str
) -> None:
    """One finding, with what to do."""
    show.write({"deploy.yaml": text})
    loaded = show.load()
    (found,) = told(loaded)
    assert found.startswith(expected)
    assert help_text in str(loaded.diagnostics[0].help)


def test_groups_whose_keys_are_names_are_one_mistake(show: Show) -> None:
    """The other keys are notes; what is wrong with a replica is another mistake."""
    text = "duplex_session: {replica_groups: [{a: 0, b: 0}, {a: 1, 1: -1}, {1: -2}]}"
    show.write({"deploy.yaml": text})
    loaded = show.load()
    first, *others = loaded.diagnostics
    assert [note.message for note in first.notes] == [
        "`duplex_session.replica_groups[0].b` must be like `0`, got `b`",
        "`duplex_session.replica_groups[1].a` must be like `0`, got `a`",
    ]
    assert all(note.origin is not None for note in first.notes)
    assert [(each.code, each.notes) for each in others] == [("CF013", ()), ("CF013", ())]


def test_replicas_of_a_group_are_named_by_number_however_they_are_written(show: Show) -> None:
    """JSON knows no other keys than text."""
    groups = [{0: 0, 1: 1}, {"0": 1, "1": 0}]
    loaded = show.load({"duplex_session": {"replica_groups": groups}})
    assert loaded.settings is not None
    session = loaded.settings.fields["duplex_session"].value
    assert session.groups == ({0: 0, 1: 1}, {0: 1, 1: 0})  # type: ignore[attr-defined]
    loaded = show.load({"duplex_session": {}})
    assert loaded.settings is not None
    assert loaded.settings.fields["duplex_session"].value.groups is None  # type: ignore[attr-defined]


def test_kinds_of_stage_are_what_the_fixture_says() -> None:
    """The tests above need one stage of every kind."""
    assert {stage.execution_type for stage in PIPELINE.stages} == set(ExecutionType)
