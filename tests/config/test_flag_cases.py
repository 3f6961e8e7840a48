"""The cases of the research notes that are about flags: T12-T14, T47-T50, T60, T62-T66, P01-P17."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs, python_fields
from stagemesh.spec.unset import UNSET
from tests.config.alias_cases import ALIASES
from tests.config.flag_case import Case, stages, strategy
from tests.config.flagged import codes_of, made_from, planned, python_made, text_of, value_in
from tests.config.speech import flag

FOUR: Final = stages(s0={"devices": "0,1,2,3"}, s1={"devices": "4"}, s2={"devices": "4"})
TWO: Final = stages(s0={"devices": "0,1"}, s1={"devices": "2"}, s2={"devices": "2"})
ATTENTION: Final = {"default": "FLASH_ATTN", "per_role": {"cross": "SAGE_ATTN"}}

CASES: Final = (
    # --- strategy against command line -----------------------------------------------------------
    Case(
        name="T12 a stage override wins over a strategy with a warning",
        line="""--stage-overrides '{"front": {"num_replicas": 3}}'""",
        strategy=strategy("front", axis="stage_replica", size=2),
        gives={"front.stage_replica": 3},
        codes=("AX007",),
        words=("`front.stage_replica.size`", "`2`", "`3`"),
    ),
    Case(
        name="T13 a global flag wins over a strategy with a warning",
        line="--data-parallel-size 4",
        strategy=strategy("front", axis="dp", size=2),
        gives={"front.dp": 4, "mid.dp": 4, "front.world_size": 4},
        codes=("AX007",),
        words=("--data-parallel-size", "`front.dp.size`"),
    ),
    Case(
        name="T13 then the devices are checked",
        line="--data-parallel-size 4",
        deploy=TWO,
        strategy=strategy("front", axis="dp", size=2),
        codes=("AX007", "PL010"),
        words=("`front` lists `2` devices and needs `4`", "--data-parallel-size"),
    ),
    Case(
        name="T14 a global 1 is a value like any other, and devices are checked behind it",
        line="--tensor-parallel-size 1",
        deploy=stages(s0={"devices": "0,1"}),
        strategy=strategy("front", axis="tp", size=2),
        codes=("AX007", "PL010"),
        words=("is replaced by `1`", "`front` lists `2` devices and needs `1`"),
    ),
    # --- given or not ----------------------------------------------------------------------------
    Case(
        name="T47 P07 what is not typed leaves the file alone",
        line="",
        deploy=stages(s0={"max_num_seqs": 3}),
        gives={"front.max_num_seqs": 3},
    ),
    Case(
        name="T47 P07 a typed value that equals the default counts",
        line="--max-num-seqs 64",
        deploy=stages(s0={"max_num_seqs": 3}),
        gives={"front.max_num_seqs": 64},
    ),
    Case(
        name="T48 what is said of a stage wins, before the global flag",
        line="--set front.max_num_seqs=5 --max-num-seqs 9",
        gives={"front.max_num_seqs": 5, "mid.max_num_seqs": 9},
    ),
    Case(
        name="T48 what is said of a stage wins, behind the global flag",
        line="""--max-num-seqs 9 --stage-overrides '{"0": {"max_num_seqs": 5}}'""",
        gives={"front.max_num_seqs": 5, "mid.max_num_seqs": 9},
    ),
    Case(
        name="P06 --no-x beats true in the file",
        line="--no-async-chunk --no-enforce-eager",
        deploy={"async_chunk": True, **stages(s0={"enforce_eager": True})},
        gives={"async_chunk": False, "front.enforce_eager": False},
    ),
    Case(
        name="P06 the file's false stays without a flag",
        line="",
        deploy={"async_chunk": False, **stages(s0={"enforce_eager": False})},
        gives={"async_chunk": False, "front.enforce_eager": False, "mid.enforce_eager": UNSET},
    ),
    Case(
        name="P06 --x beats false in the file",
        line="--async-chunk --enforce-eager",
        deploy={"async_chunk": False, **stages(s0={"enforce_eager": False})},
        gives={"async_chunk": True, "front.enforce_eager": True, "tail.enforce_eager": True},
    ),
    # --- who a flag is for -----------------------------------------------------------------------
    Case(
        name="T49 what belongs to a server is no field of a stage",
        line="""--stage-overrides '{"0": {"host": "::"}}' --set mid.port=1""",
        codes=("CF010", "CF010"),
        words=("unknown key `host` in `front`", "unknown key `port` in `mid`"),
    ),
    Case(
        name="T50 a field of another kind of stage is an error that names the kind",
        line="--cfg-parallel-size 2",
        codes=("CF060",),
        words=("--cfg-parallel-size", "`diffusion` stages", "`front` (llm_ar)"),
    ),
    Case(
        name="T50 the same for one stage",
        line="--set mid.cfg=2",
        codes=("AX020",),
        words=("cfg", "mid"),
    ),
    Case(
        name="P01 a global size reaches every stage, and each misfit is told with its flag",
        line="--tensor-parallel-size 4",
        deploy=FOUR,
        codes=("PL010",),
        words=(
            "`mid` lists `1` device and needs `4`",
            "`tp` = `4` is set here (--tensor-parallel-size)",
            "--stage-overrides",
        ),
    ),
    Case(
        name="P01 stages that are named keep their own size",
        line="""--tensor-parallel-size 4 --stage-overrides '{"1": {"tensor_parallel_size": 1},"""
        """ "2": {"tensor_parallel_size": 1}}'""",
        deploy=FOUR,
        gives={"front.tp": 4, "mid.tp": 1, "tail.tp": 1},
    ),
    Case(
        name="P02 every spelling is one value, and the command line wins",
        line="""--stage-overrides '{"0": {"tensor_parallel_size": 1, "cfg_parallel_size": 2}}'""",
        model="picture",
        deploy=stages(s0={"devices": "0,1", "tensor_parallel_size": 2}),
        gives={"dit.tp": 1, "dit.cfg": 2, "dit.world_size": 2},
    ),
    Case(
        name="P10 a flag of one kind reaches the stages of that kind",
        line="--cfg-parallel-size 2",
        model="ar_dit",
        deploy=stages(s0={"devices": "0"}, s1={"devices": "1,2"}),
        gives={"front.cfg": UNSET, "dit.cfg": 2, "front.world_size": 1},
    ),
    Case(
        name="T60 flags win over the file, for each size on its own",
        line="--tensor-parallel-size 2 --usp 2",
        model="picture",
        deploy=stages(s0={"tensor_parallel_size": 4}),
        gives={"dit.tp": 2, "dit.sp_ulysses": 2, "dit.world_size": 4},
    ),
    Case(
        name="T60 P02 a second home for a size is refused, with the one that there is",
        line="--tensor-parallel-size 2",
        model="picture",
        deploy=stages(s0={"parallel_config": {"tensor_parallel_size": 4}}),
        codes=("CF023",),
        words=("`parallel_config` is not nested here", "`tensor_parallel_size: 4`"),
    ),
    # --- attention -------------------------------------------------------------------------------
    Case(
        name="T62 the short flag replaces the default of the file and keeps the roles",
        line="--diffusion-attention-backend TORCH_SDPA",
        model="picture",
        deploy=stages(s0={"diffusion_attention_config": ATTENTION}),
        gives={
            "dit.diffusion_attention_config.default": "TORCH_SDPA",
            "dit.diffusion_attention_config.per_role.cross": "SAGE_ATTN",
            "dit.diffusion_attention_backend": UNSET,
        },
        codes=("PL098",),
        words=("--diffusion-attention-backend",),
    ),
    Case(
        name="T62 a whole configuration makes the file's short form void",
        line="""-dac '{"default": "TORCH_SDPA"}'""",
        model="picture",
        deploy=stages(s0={"diffusion_attention_backend": "FLASH_ATTN"}),
        gives={
            "dit.diffusion_attention_config.default": "TORCH_SDPA",
            "dit.diffusion_attention_backend": UNSET,
        },
        codes=("PL098",),
    ),
    Case(
        name="T62 both at once contradict each other",
        line="""--diffusion-attention-backend TORCH_SDPA -dac '{"default": "FLASH_ATTN"}'""",
        model="picture",
        codes=("PL097",),
        words=("--diffusion-attention-backend", "-dac"),
    ),
    Case(
        name="T62 the short form of a file may be taken back",
        line="--set dit.diffusion_attention_backend=null",
        model="picture",
        deploy=stages(s0={"diffusion_attention_backend": "FLASH_ATTN"}),
        gives={"dit.diffusion_attention_config": UNSET},
    ),
    # --- launch ----------------------------------------------------------------------------------
    Case(
        name="T64 several servers exclude models that denoise",
        line="--api-server-count 2",
        model="ar_dit",
        codes=("PL085",),
        words=("--> --api-server-count", "`dit`"),
    ),
    Case(
        name="T64 several servers exclude sleep mode, by flag",
        line="--api-server-count 2 --enable-sleep-mode",
        codes=("PL085",),
        words=("`front` has it", "`tail` has it", "--enable-sleep-mode"),
    ),
    Case(
        name="T64 several servers exclude sleep mode, of any stage",
        line="--api-server-count 2",
        deploy=stages(s1={"enable_sleep_mode": True}),
        codes=("PL085",),
        words=("`mid` has it", "deploy_config"),
    ),
    Case(
        name="T64 what does not sleep may have several servers",
        line="--api-server-count 2",
        deploy=stages(s1={"enable_sleep_mode": False}),
    ),
    # --- flags that were lost --------------------------------------------------------------------
    Case(
        name="T66 default parameters are applied, merged by key",
        line="""--default-sampling-params '{"front": {"temperature": 0.5}}'""",
        deploy=stages(s0={"default_sampling_params": {"temperature": 1.0, "top_k": 3}}),
        gives={"front.sampling.temperature": 0.5, "front.sampling.top_k": 3},
    ),
    Case(
        name="T66 fields of denoising stages are applied",
        line="--auxiliary-text-encoder t5 --diffusion-streaming-output",
        model="ar_dit",
        gives={
            "dit.auxiliary_text_encoder": "t5",
            "dit.diffusion_streaming_output": True,
            "front.auxiliary_text_encoder": UNSET,
        },
    ),
    Case(
        name="one word behind a flag for several is what a file says with one word",
        line="--lora-path some/adapter",
        model="picture",
        gives={"dit.lora_path": "some/adapter"},
    ),
    # --- one policy ------------------------------------------------------------------------------
    Case(
        name="P17 the strategy's policy holds",
        line="",
        strategy=strategy("front", axis="stage_replica", size=2, routing="least_queue"),
        gives={"front.policy": "least_queue"},
    ),
    Case(
        name="P17 the same policy is fine, in either spelling",
        line="--omni-lb-policy least-queue-length",
        strategy=strategy("front", axis="stage_replica", size=2, routing="least_queue"),
        gives={"front.policy": "least_queue"},
    ),
    Case(
        name="P17 another policy is an error, also the one that is a default elsewhere",
        line="--omni-lb-policy random",
        strategy=strategy("front", axis="stage_replica", size=2, routing="round_robin"),
        codes=("CF068",),
        words=("conflicting load-balancer policy", "`random`", "`round_robin`"),
    ),
    Case(
        name="P17 a strategy that names none takes the flag's",
        line="--omni-lb-policy random",
        strategy=strategy("front", axis="stage_replica", size=2),
        gives={"front.policy": "random", "mid.policy": "round_robin"},
    ),
)


@pytest.mark.parametrize("case", [*CASES, *ALIASES], ids=lambda case: case.name)
def test_a_case_of_the_notes_holds(case: Case, tmp_path: Path) -> None:
    """Typed as a user would, planned without a device."""
    made = made_from(
        tmp_path,
        case.line,
        model=case.model,
        deploy=case.deploy,
        strategy=case.strategy,
        further=() if case.alias is None else (flag("text_encoder_tp_size", case.alias),),
    )
    text = text_of(made)
    assert tuple(codes_of(made)) == case.codes, text
    assert [word for word in case.words if word not in text] == []
    if case.gives or not case.codes:
        plan = planned(made)
        assert {path: value_in(plan, path) for path in case.gives} == dict(case.gives)
    else:
        assert made.plan is None


def test_p07_the_same_holds_for_python_callers(tmp_path: Path) -> None:
    """T47: not given, given at its default, and taken back."""
    over = {"0": {"max_num_seqs": 3}}
    for given, expected in (
        ({}, 64),
        ({"max_num_seqs": 256}, 256),
        ({"max_num_seqs": UNSET}, 64),
        ({"max_num_seqs": None}, 64),
    ):
        inputs = PlanInputs(model="", fields=python_fields(given))
        plan = planned(python_made(tmp_path, inputs))
        assert value_in(plan, "front.max_num_seqs") == expected
    inputs = PlanInputs(model="", fields=python_fields({"max_num_seqs": 256}), stage_overrides=over)
    plan = planned(python_made(tmp_path, inputs))
    assert value_in(plan, "front.max_num_seqs") == 3
    [old] = plan.stages[0].values["max_num_seqs"].superseded
    assert (old.value, old.origin) == (256, "Omni(max_num_seqs=...)")
    assert plan.stages[1].values["max_num_seqs"].origin == "Omni(max_num_seqs=...)"
