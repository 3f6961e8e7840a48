"""Cases about names that a pipeline gives to a field of one of its stages: T65 of the notes."""

from __future__ import annotations

from typing import Final

from stagemesh.spec.unset import UNSET
from tests.config.flag_case import Case, stages

_MASTER: Final = "--omni-master-address 127.0.0.1 --omni-master-port 26000"
_BOTH: Final = (
    """--stage-overrides '{"0": {"text_encoder_tp_size": SIZE, "tensor_parallel_size": 2}}'"""
)

ALIASES: Final = (
    Case(
        name="T65 a name of the pipeline reaches its stage alone",
        line="",
        alias="4",
        model="split",
        gives={"text_encoder.tp": 4, "denoiser.tp": UNSET, "vae.tp": UNSET},
    ),
    Case(
        name="T65 it is more special than a flag for all stages",
        line="--tensor-parallel-size 2",
        alias="4",
        model="split",
        gives={"text_encoder.tp": 4, "denoiser.tp": 2, "vae.tp": 2},
    ),
    Case(
        name="T65 the stage's own key wins with a warning",
        line="--set text_encoder.tensor_parallel_size=2",
        alias="4",
        model="split",
        gives={"text_encoder.tp": 2},
        codes=("CF064",),
        words=("`text_encoder_tp_size`, `4`, is replaced by `2`",),
    ),
    Case(
        name="T65 it may stand at its stage",
        line="""--stage-overrides '{"0": {"text_encoder_tp_size": 4}}'""",
        model="split",
        gives={"text_encoder.tp": 4},
    ),
    Case(
        name="T65 a deploy file may say it in the entry of its stage",
        line="",
        deploy=stages(s0={"text_encoder_tp_size": 4}),
        model="split",
        gives={"text_encoder.tp": 4, "denoiser.tp": UNSET},
    ),
    Case(
        name="T65 and what is wrong with it is told under the name that stands there",
        line="",
        deploy=stages(s0={"text_encoder_tp_size": 0}),
        model="split",
        codes=("CF013",),
        words=(
            "`text_encoder.text_encoder_tp_size` must be `>= 1`",
            "stages[0].text_encoder_tp_size",
        ),
    ),
    Case(
        name="T65 in the entry of another stage it is an error as well",
        line="",
        deploy=stages(s1={"text_encoder_tp_size": 1}),
        model="split",
        codes=("CF063",),
        words=("`denoiser.text_encoder_tp_size`", "move it to `text_encoder`"),
    ),
    Case(
        name="T65 the stage's own key wins there too",
        line=_BOTH.replace("SIZE", "4"),
        model="split",
        gives={"text_encoder.tp": 2},
        codes=("CF064",),
    ),
    Case(
        name="T65 saying the same there is fine",
        line=_BOTH.replace("SIZE", "2"),
        model="split",
        gives={"text_encoder.tp": 2},
    ),
    Case(
        name="T65 at another stage it is an error",
        line="--set denoiser.text_encoder_tp_size=4",
        model="split",
        codes=("CF063",),
        words=("`denoiser.text_encoder_tp_size`", "move it to `text_encoder`"),
    ),
    Case(
        name="T65 at a stage that is not there, that alone is told",
        line="--set decoder.text_encoder_tp_size=4",
        model="split",
        codes=("CF020",),
        words=("`decoder`",),
    ),
    Case(
        name="T65 a stage that is not started has no use for it",
        line=f"--stage-id 1 {_MASTER}",
        alias="4",
        model="split",
        codes=("CF060",),
        words=("`denoiser`", "`text_encoder.tensor_parallel_size`"),
    ),
)
