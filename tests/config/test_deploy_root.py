"""The root of deploy files: values for every stage, sections for platforms, edges, refused keys."""

from __future__ import annotations

import dataclasses

import pytest

from stagemesh.config.schema import PLATFORMS
from stagemesh.config.settings import EdgeSettings
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.pipeline import ExecutionType
from stagemesh.spec.unset import UNSET
from tests.config.deploying import CATALOG, PIPELINE, Show, chain, said
from tests.config.speech import told

STAGES = ("thinker", "talker", "code2wav", "painter")


def values(show: Show, path: str, **inputs: object) -> list[object]:
    """Return what was said about each stage; everything must have been well."""
    loaded = show.load(**inputs)  # type: ignore[arg-type]
    assert told(loaded) == []
    given = [said(loaded, name, path) for name in STAGES]
    return [each if each is UNSET else each.value for each in given]


# --- values for every stage ----------------------------------------------------------------------


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
            "base.yaml": "stages:\n- {stage_id: 0, dtype: a, data_parallel_size: 3}\n"
            "platforms: {cpu: {stages: [{stage_id: 3, dtype: d}]}}\n",
            "deploy.yaml": "base_config: base.yaml\ndtype: z\ndata_parallel_size: 2\n"
            "stages:\n- {stage_id: 1, engine_extras: {dtype: b}}\n- {stage_id: 2, dtype: ~}\n",
        }
    )
    assert values(show, "dtype", platform="cpu") == ["a", "b", UNSET, "d"]
    assert values(show, "axes.dp.size") == [3, 2, 2, 2]
    given = said(show.load(), "talker", "dtype")
    assert given is not UNSET
    assert chain(given) == [("b", "deploy.yaml:5:40"), ("z", "deploy.yaml:2:8")]


def test_null_at_the_root_takes_back_what_a_lower_root_says(show: Show) -> None:
    """As everywhere."""
    show.write({"base.yaml": "dtype: a", "deploy.yaml": "base_config: base.yaml\ndtype: ~"})
    assert values(show, "dtype") == [UNSET] * 4


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


# --- keys that belong elsewhere ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected", "help_text"),
    [
        (
            "attention_backend: TORCH_SDPA",
            "CF024 deploy.yaml:1:1: `attention_backend` is a field of a stage",
            "`stages: [{stage_id: 0, attention_backend: TORCH_SDPA}]`",
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
            "",
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


# --- sections for platforms ----------------------------------------------------------------------

SECTIONS = """\
cuda_mps: true
model_runner: v1
stages:
- {stage_id: 0, max_num_seqs: 1, env: {A: a}}
platforms:
  cuda:
    model_runner: v2
    stages:
    - {stage_id: 0, max_num_seqs: 2, env: {B: b}, data_parallel_size: 2}
    - {stage_id: 3, max_num_seqs: 3}
  rocm:
    cuda_mps: false
  npu:
"""


def test_only_the_section_of_the_platform_holds(show: Show) -> None:
    """On top of everything else in the file; stages that it does not list may appear."""
    show.write({"deploy.yaml": SECTIONS})
    assert values(show, "max_num_seqs", platform="cuda") == [2, UNSET, UNSET, 3]
    assert values(show, "axes.dp.size", platform="cuda") == [2, UNSET, UNSET, UNSET]
    assert values(show, "env", platform="cuda")[0] == {"A": "a", "B": "b"}
    assert values(show, "model_runner", platform="cuda") == ["v2"] * 4
    for platform in (None, "rocm", "npu", "cpu"):
        assert values(show, "max_num_seqs", platform=platform) == [1, UNSET, UNSET, UNSET]
        assert values(show, "model_runner", platform=platform) == ["v1"] * 4
    for platform, expected in (("cuda", True), ("rocm", False)):
        loaded = show.load(platform=platform)
        assert loaded.settings is not None
        assert loaded.settings.fields["cuda_mps"].value is expected


def test_values_of_a_section_are_of_its_layer(show: Show) -> None:
    """With the place in the section, and what they replaced."""
    show.write({"deploy.yaml": SECTIONS})
    given = said(show.load(platform="cuda"), "thinker", "max_num_seqs")
    assert given is not UNSET
    assert chain(given) == [(2, "deploy.yaml:9:35"), (1, "deploy.yaml:4:31")]
    assert given.origin.layer is Layer.PLATFORM
    assert given.origin.path == "platforms.cuda.stages[0].max_num_seqs"


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        ("platforms: ~", 1),
        ("platforms: {cuda: ~}", 1),
        ("platforms: {cuda: {stages: ~}}", 1),
        ("platforms: {npu: ~}", 2),
        ("platforms: {cuda: {model_runner: ~}}", 2),
        ("stages: ~", 2),
        ("stages: ~\nplatforms: ~", UNSET),
        ("stages: []", 2),
    ],
)
def test_null_takes_away_what_lower_files_say(show: Show, overlay: str, expected: object) -> None:
    """A section, all of them, or all entries of stages."""
    show.write({"base.yaml": SECTIONS, "deploy.yaml": f"base_config: base.yaml\n{overlay}\n"})
    assert values(show, "max_num_seqs", platform="cuda")[0] == expected


def test_every_section_is_checked_and_says_what_it_may_hold(show: Show) -> None:
    """Also those of other platforms."""
    show.write(
        {
            "deploy.yaml": "platforms:\n  npu: {dtype: a, cuda_mps: 1, model_runner: v3}\n"
            "  xpu: {stages: [{stage_id: 9}, {stage_id: 0, devices: a}]}\n"
            "  musa: []\n  cpu: {stages: {}}\n  1: {}\n"
        }
    )
    loaded = show.load(platform="cuda")
    assert [line.partition(" must ")[0] for line in told(loaded)] == [
        "CF010 deploy.yaml:2:9: unknown key `dtype` in `platforms.npu`",
        "CF012 deploy.yaml:2:29: `platforms.npu.cuda_mps`",
        "CF013 deploy.yaml:2:46: `platforms.npu.model_runner` does not take `v3`",
        "CF020 deploy.yaml:3:29: no stage `9` in this pipeline",
        "CF013 deploy.yaml:3:56: `thinker.devices`",
        "CF012 deploy.yaml:4:9: `platforms.musa`",
        "CF012 deploy.yaml:5:17: `platforms.cpu.stages`",
        "CF030 deploy.yaml:6:3: unknown platform `1`",
    ]
    assert loaded.diagnostics[0].help == "allowed here: `cuda_mps`, `model_runner`, `stages`"
    assert "with any of `stages`, `model_runner`, `cuda_mps`" in loaded.diagnostics[5].message
    show.write({"deploy.yaml": "platforms: [cuda]"})
    (found,) = told(show.load())
    assert found.startswith("CF012 deploy.yaml:1:12: `platforms` must be a mapping from platforms")


def test_a_plan_takes_the_section_of_its_devices(show: Show) -> None:
    """CPU slots, and imaginary devices by their vendor."""
    show.write(
        {
            "deploy.yaml": "platforms:\n"
            + "".join(
                f"  {name}: {{stages: [{{stage_id: 0, max_num_seqs: {index + 1}}}]}}\n"
                for index, name in enumerate(PLATFORMS)
            )
        }
    )
    for devices, platform in ((UNSET, "cpu"), ("8xH200", "cuda"), ("8xMI300X", "rocm")):
        plan = show.make(devices=devices).plan
        assert plan is not None
        assert plan.stage(0).engine_args["max_num_seqs"] == PLATFORMS.index(platform) + 1


# --- edges ---------------------------------------------------------------------------------------


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


def test_kinds_of_stage_are_what_the_fixture_says() -> None:
    """The tests above need one stage of every kind."""
    assert {stage.execution_type for stage in PIPELINE.stages} == set(ExecutionType)
