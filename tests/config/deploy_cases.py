"""The table of T33 to T51: files, and the values or findings that they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stagemesh.spec.unset import UNSET, Unset


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Files, and what they lead to."""

    name: str
    """Number of the case and what it shows."""
    files: Mapping[str, str]
    """Text by file name; `deploy.yaml` is the one that is given."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Values by stage and path, or by field of the pipeline; `UNSET` for what is not said."""
    told: tuple[str, ...] = ()
    """Beginnings of `code place: message`, of all findings in order."""
    help: str = ""
    """A part of the help of the first finding."""
    overrides: Mapping[str, object] | Unset = UNSET
    """What is said for this one start."""
    platform: str | None = None
    """Platform of the devices."""


def stages(*entries: str) -> str:
    """Return a deploy file with these entries, numbered from 0."""
    return "stages:\n" + "".join(
        f"  - {{stage_id: {index}, {text}}}\n" for index, text in enumerate(entries) if text
    )


BASE: Final = stages("max_num_seqs: 32, share: 0.9", "max_num_seqs: 16")
CASES: Final = (
    Case(
        name="T33 the removed list of stages is an error that shows the new one",
        files={"deploy.yaml": "stage_args: [{stage_id: 0}]"},
        told=("CF023 deploy.yaml:1:1: `stage_args` is not read",),
        help="the pipeline itself holds the topology; write `stages:`",
    ),
    *(
        Case(
            name=f"T34 `{nested}` is an error that shows the flat rewrite",
            files={
                "deploy.yaml": stages(f"max_num_seqs: 2, {nested}: {{load_format: dummy, a: [1]}}")
            },
            told=(f"CF023 deploy.yaml:2:36: `{nested}` is not nested here",),
            help="in the entry of the stage: `load_format: dummy`, `a: ...`",
        )
        for nested in ("engine_args", "runtime", "parallel_config", "model_config")
    ),
    Case(
        name="T34 a field of the entry wins over the same engine option, with a warning",
        files={
            "deploy.yaml": stages("max_num_seqs: 2, engine_extras: {max_num_seqs: 5, share: 1}")
        },
        values={"thinker.max_num_seqs": 2, "thinker.share": 1.0},
        told=(
            "CF033 deploy.yaml:2:66: `thinker.engine_extras.max_num_seqs` is replaced by the field",
        ),
    ),
    Case(
        name="T34 the same value in both is fine, and null takes lower options back",
        files={
            "base.yaml": stages("engine_extras: {share: 0.5}", "engine_extras: {share: 0.5}"),
            "deploy.yaml": "base_config: base.yaml\n"
            + stages("max_num_seqs: 2, engine_extras: {max_num_seqs: 2}", "engine_extras: ~"),
        },
        values={"thinker.max_num_seqs": 2, "thinker.share": 0.5, "talker.share": UNSET},
    ),
    Case(
        name="T34 engine options merge by key at any depth",
        files={
            "base.yaml": stages("engine_extras: {profiler_config: {kind: torch, deep: {a: 1}}}"),
            "deploy.yaml": "base_config: base.yaml\n"
            + stages("engine_extras: {profiler_config: {deep: {b: 2}}}"),
        },
        values={"thinker.profiler_config": {"kind": "torch", "deep": {"a": 1, "b": 2}}},
    ),
    Case(
        name="T35 a mapping that meets a scalar names both places",
        files={
            "base.yaml": stages("default_sampling_params: {stop: {a: 1}}"),
            "deploy.yaml": "base_config: base.yaml\n"
            + stages("default_sampling_params: {stop: 3}"),
        },
        told=("CF014 deploy.yaml:3:51: `default_sampling_params.stop` is a single value and a",),
    ),
    Case(
        name="T36 an overlay changes the one field that it gives",
        files={
            "base.yaml": BASE,
            "deploy.yaml": "base_config: base.yaml\n" + stages("", "max_num_seqs: 1"),
        },
        values={"thinker.max_num_seqs": 32, "thinker.share": 0.9, "talker.max_num_seqs": 1},
    ),
    Case(
        name="T37 three files lie on each other; null clears, false and 0 and lists replace",
        files={
            "one.yaml": "async_chunk: true\nactive_stream_window: 2\n"
            + stages(
                "max_num_seqs: 1, share: 0.5, enforce_eager: true, lora_target_modules: [a, b]",
                "max_num_seqs: 3",
            ),
            "two.yaml": "base_config: one.yaml\nasync_chunk: false\n"
            + stages("max_num_seqs: 2, share: 0, lora_target_modules: [c]"),
            "deploy.yaml": "base_config: two.yaml\nactive_stream_window: 0\n"
            + stages("share: ~, enforce_eager: false"),
        },
        values={
            "async_chunk": False,
            "active_stream_window": 0,
            "thinker.max_num_seqs": 2,
            "thinker.share": UNSET,
            "thinker.enforce_eager": False,
            "thinker.lora_target_modules": ("c",),
            "talker.max_num_seqs": 3,
        },
    ),
    Case(
        name="T38 request parameters merge by key across files",
        files={
            "base.yaml": stages(
                "default_sampling_params: {temperature: 0.5, extra_args: {a: 1}},"
                " subtalker_sampling_params: {top_k: 3}"
            ),
            "deploy.yaml": "base_config: base.yaml\n"
            + stages(
                "default_sampling_params: {extra_args: {b: 2}}, subtalker_sampling_params: {n: 1}"
            ),
        },
        values={
            "thinker.default_sampling_params": {"temperature": 0.5, "extra_args": {"a": 1, "b": 2}},
            "thinker.subtalker_sampling_params": {"top_k": 3, "n": 1},
        },
    ),
    Case(
        name="T39 all mappings merge by the one rule, lists of edges replace",
        files={
            "base.yaml": "duplex_session: {max_sessions: 4, warmup_frames: 1}\n"
            "edges: [{from: 0, to: 1, max_inflight: 2}, {from: 1, to: 2, max_inflight: 3}]\n"
            + stages("env: {A: x, B: y}, compilation_config: {level: 3, cache: {a: 1}}"),
            "deploy.yaml": "base_config: base.yaml\nduplex_session: {max_sessions: 8}\n"
            "edges: [{from: thinker, to: talker, window_size: -1}]\n"
            + stages("env: {B: z}, compilation_config: {cache: {b: 2}}"),
        },
        values={
            "thinker.env": {"A": "x", "B": "z"},
            "thinker.compilation_config": {"level": 3, "cache": {"a": 1, "b": 2}},
            "edges": ({"from": 0, "to": 1, "window_size": -1},),
        },
    ),
    Case(
        name="T40 sections of a platform merge across files by stage",
        files={
            "base.yaml": BASE + "platforms: {cuda: {stages: [{stage_id: 0, env: {A: x, B: y}},"
            " {stage_id: 1, max_num_seqs: 4}]}}\n",
            "deploy.yaml": "base_config: base.yaml\n"
            + stages("", "max_num_seqs: 7")
            + "platforms: {cuda: {stages: [{stage_id: 0, env: {B: z}}, {stage_id: 3, seed: ~}]}}\n",
        },
        platform="cuda",
        values={
            "thinker.env": {"A": "x", "B": "z"},
            "thinker.max_num_seqs": 32,
            "talker.max_num_seqs": 4,
        },
    ),
    Case(
        name="T40 an unknown platform is an error with the nearest name",
        files={"deploy.yaml": "platforms: {rocn: {stages: []}}"},
        told=("CF030 deploy.yaml:1:13: unknown platform `rocn`",),
        help="did you mean `rocm`? allowed here: `cpu`, `cuda`, `musa`, `npu`, `rocm`, `xpu`",
    ),
    *(
        Case(
            name=f"T40 an unknown platform is an error with the one that `{name}` means",
            files={"deploy.yaml": f"platforms: {{{name}: {{stages: []}}}}"},
            told=(f"CF030 deploy.yaml:1:13: unknown platform `{name}`",),
            help=f"did you mean `{meant}`? "
            "allowed here: `cpu`, `cuda`, `musa`, `npu`, `rocm`, `xpu`",
        )
        for name, meant in (("gpu", "cuda"), ("AMD", "rocm"), ("ascend", "npu"))
    ),
    Case(
        name="T41 a circle of files is one error that lists them",
        files={
            "deploy.yaml": "base_config: sub/one.yaml",
            "sub/one.yaml": "base_config: two.yaml",
            "sub/two.yaml": "base_config: ../deploy.yaml",
        },
        told=("CF017 sub/two.yaml:1:14: `base_config` leads back to `deploy.yaml`",),
        help="`deploy.yaml` -> `sub/one.yaml` -> `sub/two.yaml` -> `deploy.yaml`",
    ),
    *(
        Case(
            name=f"T42 `{key}` is only ever derived, {where}",
            files={"deploy.yaml": text.replace("KEY", key)},
            told=(f"CF027 deploy.yaml:{place}: `{key}` follows from other values",),
        )
        for key in ("use_v2_model_runner", "supports_native_mrv2_data_plane", "num_gpus")
        for where, place, text in (
            ("in engine options", "2:35", stages("engine_extras: {KEY: true}")),
            ("in an entry", "2:19", stages("KEY: true")),
            ("at the root", "1:1", "KEY: true"),
        )
    ),
    Case(
        name="T43 the model runner of the root reaches every stage",
        files={"deploy.yaml": "model_runner: v2\n" + stages("", "model_runner: v1")},
        values={
            "thinker.model_runner": "v2",
            "talker.model_runner": "v1",
            "code2wav.model_runner": "v2",
            "painter.model_runner": "v2",
        },
    ),
    Case(
        name="T43 there is no third model runner",
        files={"deploy.yaml": "model_runner: v3"},
        told=("CF013 deploy.yaml:1:15: `model_runner` does not take `v3`",),
    ),
    *(
        Case(
            name=f"T44 `{text}` is out of bounds",
            files={"deploy.yaml": f"duplex_session: {{{text}}}"},
            told=(f"{code} deploy.yaml:1:{20 + text.index(':')}: `duplex_session.",),
        )
        for code, text in (
            ("CF013", "idle_ttl_s: 0"),
            ("CF013", "disconnect_grace_s: -1"),
            ("CF013", "max_sessions: 0"),
            ("CF013", "max_pending_turns_per_session: -3"),
            ("CF013", "server_vad_model_path: ''"),
            ("CF012", "warmup_frames: 1.5"),
            ("CF013", "replica_policy: least"),
            ("CF012", "max_sessions: true"),
        )
    ),
    Case(
        name="T44 null is a value of the idle time",
        files={
            "base.yaml": "duplex_session: {idle_ttl_s: 5, max_sessions: 2}",
            "deploy.yaml": "base_config: base.yaml\n"
            "duplex_session: {idle_ttl_s: null, max_sessions: null}",
        },
    ),
    Case(
        name="T46 an edge needs both ends to leave chunks out",
        files={"deploy.yaml": stages("", "", "async_chunk: false")},
        told=("CF036 deploy.yaml:2:32: edge `1 -> 2` is without chunks at `code2wav`, and with",),
    ),
    Case(
        name="T46 an edge whose ends agree is without chunks",
        files={"deploy.yaml": stages("async_chunk: true", "", "", "")},
        values={"thinker.async_chunk": True},
    ),
    Case(
        name="T47 null takes a value back, absence leaves it, a default that is given counts",
        files={"deploy.yaml": stages("max_num_seqs: 3", "max_num_seqs: 3", "max_num_seqs: 3")},
        overrides={"thinker": {"max_num_seqs": None}, "1": {"max_num_seqs": 4}, "code2wav": {}},
        values={
            "thinker.max_num_seqs": UNSET,
            "talker.max_num_seqs": 4,
            "code2wav.max_num_seqs": 3,
        },
    ),
    Case(
        name="T48 what is said of a stage wins over what is said of all, in any order",
        files={
            "base.yaml": stages("dtype: float16") + "dtype: float32\n",
            "deploy.yaml": "dtype: bfloat16\nbase_config: base.yaml\n",
        },
        overrides={"2": {"dtype": "auto"}},
        values={
            "thinker.dtype": "float16",
            "talker.dtype": "bfloat16",
            "code2wav.dtype": "auto",
            "painter.dtype": "bfloat16",
        },
    ),
    Case(
        name="T49 keys of the server are no settings of stages",
        files={"deploy.yaml": "host: a\n" + stages("api_key: b")},
        overrides={"0": {"port": 1}},
        told=(
            "CF010 deploy.yaml:1:1: unknown key `host` in `deploy.yaml`",
            "CF010 deploy.yaml:3:19: unknown key `api_key` in `thinker`",
            "CF010 stage_overrides: unknown key `port` in `thinker`",
        ),
    ),
    Case(
        name="T50 an engine option that no engine has is an error with the nearest name",
        files={"deploy.yaml": stages("engine_extras: {max_num_sqs: 3}")},
        told=("CF010 deploy.yaml:2:35: unknown key `max_num_sqs` in `thinker.engine_extras`",),
        help="did you mean `max_num_seqs`?",
    ),
    Case(
        name="T51 what was ignored elsewhere is an error, each with a place",
        files={
            "deploy.yaml": "tensor_paralel_size: 2\ntensor_parallel_size: 2\n"
            "stages: [{stage_id: 4}, {stage_id: 0}, {stage_id: 0}, {stage_id: '1'}]\n"
        },
        told=(
            "CF010 deploy.yaml:1:1: unknown key `tensor_paralel_size` in `deploy.yaml`",
            "CF024 deploy.yaml:2:1: `tensor_parallel_size` is a field of a stage",
            "CF020 deploy.yaml:3:21: no stage `4` in this pipeline",
            "CF021 deploy.yaml:3:51: stage `0` is given twice",
            "CF012 deploy.yaml:3:66: `stages[3].stage_id` must be a whole number, got text `1`",
        ),
    ),
)
