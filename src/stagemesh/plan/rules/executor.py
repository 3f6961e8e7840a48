"""How the ranks of every stage are started, and what of a stage's environment reaches them.

What Ray's workers get is stated here as data: the launcher that starts them sends exactly that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, cast

from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.plan.setup import Executor
from stagemesh.plan.stage import StageDraft
from stagemesh.spec.axis import WorldRole
from stagemesh.spec.diagnostic import Diagnostic, Severity
from stagemesh.spec.origin import Origin
from stagemesh.spec.patterns import RouteByStage
from stagemesh.spec.pipeline import ExecutionType

_FIELD: Final = "distributed_executor_backend"

RAY_FORWARDED: Final = re.compile(
    "(VLLM|OMNI|DIFFUSION|NCCL|TORCH_NCCL|UCX|HF|HUGGING_FACE|HUGGINGFACE|TRANSFORMERS)_.*"
    "|PYTHONPATH|CUDA_LAUNCH_BLOCKING|OMP_NUM_THREADS"
)
"""Variables of the launching process that Ray's workers get."""
VISIBILITY: Final = re.compile(
    "(CUDA|HIP|ROCR|ASCEND_RT|MUSA|GPU)_VISIBLE_DEVICES|ZE_AFFINITY_MASK|ONEAPI_DEVICE_SELECTOR"
)
"""Variables that say which devices a process sees."""
RAY_EXCLUDED: Final = re.compile(
    f"{VISIBILITY.pattern}|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|MASTER_ADDR"
    "|MASTER_PORT|VLLM_DP_.*|VLLM_HOST_IP|HOST_IP|RAY_.*"
)
"""Variables that they never get, from nowhere: each keeps its own devices, rank and address."""


def executor(context: RuleContext) -> Ruling:
    """Decide the executor of every stage."""
    chosen = {draft.stage_id: executor_of(draft) for draft in context.drafts}
    backend = context.launch("worker_backend")
    is_all_by_ray = backend is not None and backend.value == "ray"
    found: list[Diagnostic] = []
    for draft in context.drafts:
        found += _unsupported(context, draft)
        found += _visible(context, draft)
        if is_all_by_ray or chosen[draft.stage_id] == "ray":
            found += _not_forwarded(context, draft)
    return Ruling(diagnostics=tuple(found), executors=chosen)


def executor_of(draft: StageDraft) -> Executor:
    """Return how the ranks of a stage are started: as was said, or by how many there are."""
    given = draft.choice.value(_FIELD)
    if given is not None:
        return cast("Executor", given)
    return "uni" if _workers(draft) == 1 else "mp"


def _workers(draft: StageDraft) -> int:
    """Ranks of one engine: independent groups of a stage by tokens have an engine each."""
    stack = draft.stack
    if draft.stage.execution_type is ExecutionType.DIFFUSION:
        return stack.world
    independent = math.prod(
        item.size
        for item in stack.axes
        if item.axis.role is WorldRole.MULTIPLIES_RANKS and isinstance(item.routing, RouteByStage)
    )
    return stack.world // independent


def _unsupported(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    stage, chosen, workers = draft.stage.model_stage, executor_of(draft), _workers(draft)
    origin = context.origin(draft, _FIELD)
    if chosen == "external_launcher" and draft.stage.execution_type is ExecutionType.DIFFUSION:
        yield Diagnostic(
            code="PL100",
            message=f"`{_FIELD}: {chosen}` does not start the diffusion stage `{stage}`",
            origin=origin,
            help="write `mp` or `ray` for it, or leave it out",
        )
    if chosen == "uni" and workers > 1:
        yield Diagnostic(
            code="PL101",
            message=f"`{_FIELD}: {chosen}` runs one rank, and `{stage}` has `{workers}`",
            origin=origin,
            help="write `mp`, or leave it out",
        )


def _visible(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    """Devices are chosen in one place; a second one could only contradict it."""
    for name, origin in _set_in_env(context, draft, VISIBILITY):
        yield Diagnostic(
            code="PL113",
            message=f"`env` of `{draft.stage.model_stage}` sets `{name}`",
            origin=origin,
            help="write `devices`, whose numbers count the devices that the whole command sees",
        )


def _not_forwarded(context: RuleContext, draft: StageDraft) -> Iterator[Diagnostic]:
    """Say which variables of a stage stay behind; those of visibility are errors already."""
    for name, origin in _set_in_env(context, draft, RAY_EXCLUDED):
        if not VISIBILITY.fullmatch(name):
            yield Diagnostic(
                code="PL102",
                severity=Severity.WARNING,
                message=f"`{name}` in `env` of `{draft.stage.model_stage}` is not sent to Ray's"
                " workers",
                origin=origin,
                help="each of them keeps its own devices, rank and address; leave it out",
            )


def _set_in_env(
    context: RuleContext, draft: StageDraft, names: re.Pattern[str]
) -> Iterator[tuple[str, Origin]]:
    """Return the variables of a stage that have such a name, with their places."""
    given = context.given(draft, "env")
    for name in () if given is None else cast("Mapping[str, str]", given.value):
        if given is not None and names.fullmatch(name):
            yield name, given.at(name)
