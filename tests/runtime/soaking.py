"""Much traffic through three stages of fakes whose last one loses replicas all the time.

Every request has been heard before, without faults; now it is heard again, output by output, to its
end, until its user leaves it, or until the process that it is bound to dies.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from stagemesh.config.catalog import Catalog, Model
from stagemesh.config.host import read_host
from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.make import make
from stagemesh.plan.values import Plan
from stagemesh.runtime.omni import AsyncOmni
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.params import SamplingParams
from tests.plan.making import pipeline, stage
from tests.runtime.hunting import Bond

ENDLESS: Final = 1000
"""More outputs than any request has."""
PATIENCE: Final = (0, 1, 3, ENDLESS)
"""Outputs that a user hears who leaves about half of the answers in the middle."""
REQUEST_S: Final = 120.0
"""Longest time of a request; one that takes longer hangs."""

DEPLOY: Final = """\
async_chunk: true
connectors:
  small: {name: SharedMemoryConnector, extra: {arena_bytes: 1048576}}
edges:
  - {from: thinker, to: talker, connector: small}
  - {from: talker, to: vocoder, connector: small}
stages:
  - {stage_id: 0, engine: fake, num_outputs: 3, output_bytes: 40000}
  - {stage_id: 1, engine: fake}
  - {stage_id: 2, engine: fake, max_restarts: 1000, restart_delay: 0}
"""
"""Its last stage may be started again as often as it dies."""

FAKES: Final = pipeline(
    stage(0, "thinker", produces_chunks=True, final_output=True, final_output_type="text"),
    stage(1, "talker", produces_chunks=True),
    stage(2, "vocoder", produces_chunks=True, final_output=True, final_output_type="data"),
)
REPLICAS: Final = {
    "strategies": {
        "talker": [{"axis": "stage_replica", "size": 2, "routing": "least_queue"}],
        "vocoder": [{"axis": "stage_replica", "size": 3, "routing": "random"}],
    }
}

Question: TypeAlias = tuple[str, SamplingParams]
"""A prompt with its parameters."""
Said: TypeAlias = tuple[object, tuple[bytes, ...]]
"""One output, in memory of its own."""
Whole: TypeAlias = Mapping[str, Sequence[Said]]
"""All outputs of a request without faults, by stage."""

QUESTIONS: Final[Sequence[Question]] = [
    (f"ask {number}", {"thinker": {"output_bytes": size, "num_outputs": 1 + number % 4}})
    for number, size in enumerate((10, 40_000, 600_000) * 3)
]
"""Sizes that travel in the message, in the arena, and in a file of their own."""


def deployed(folder: Path) -> Plan:
    """Plan a checkpoint of fakes with the deploy file, both written to `folder`."""
    (folder / "config.json").write_text('{"model_type": "toy"}', encoding="ascii")
    (folder / "deploy.yaml").write_text(DEPLOY, encoding="ascii")
    inputs = PlanInputs(
        model=str(folder), deploy_config=folder / "deploy.yaml", strategy_config=REPLICAS
    )
    catalog = replace(Catalog.installed(), models=(Model(pipeline=FAKES, package="tests"),))
    made = make(inputs, read_host(), catalog)
    assert made.plan is not None, made.diagnostics
    return made.plan


def said(output: OmniOutput) -> Said:
    """What is to be the same whenever a request is made."""
    return output.payload.meta, tuple(bytes(buffer.data) for buffer in output.payload.buffers)


class User:
    """Asks one request after the other, and compares what is said with what was said before."""

    def __init__(self, omni: AsyncOmni, whole: Sequence[Whole], patience: Sequence[int]) -> None:
        """Hears as many outputs of a request as one of `patience`, then leaves it."""
        self._omni = omni
        self._whole = whole
        self._patience = patience

    async def __call__(self, rng: random.Random, bond: Bond) -> bool:
        """Ask once; whether the answer was heard to its end."""
        number, patience = rng.randrange(len(QUESTIONS)), rng.choice(self._patience)
        (prompt, params), whole = QUESTIONS[number], self._whole[number]
        heard: Counter[str] = Counter()
        running = self._omni.submit(
            prompt, sampling_params=params, timeout_s=REQUEST_S, on_progress=bond
        )
        with closing(running):
            async for output in running:
                assert said(output) == whole[output.stage][heard[output.stage]]
                heard[output.stage] += 1
                bond.has_output = True
                if heard.total() > patience:
                    return False
        assert heard == {name: len(outputs) for name, outputs in whole.items()}
        return True


async def without_faults(omni: AsyncOmni) -> list[Whole]:
    """Make every request once."""
    found: list[Whole] = []
    for prompt, params in QUESTIONS:
        result = await omni.run(prompt, sampling_params=params)
        by_stage: dict[str, list[Said]] = {}
        for output in result.outputs:
            by_stage.setdefault(output.stage, []).append(said(output))
        found.append(by_stage)
    return found


def users(omni: AsyncOmni, whole: Sequence[Whole], number: int) -> list[User]:
    """So many: a third leaves answers in the middle, the others hear everything."""
    return [User(omni, whole, [ENDLESS] if index % 3 else PATIENCE) for index in range(number)]
