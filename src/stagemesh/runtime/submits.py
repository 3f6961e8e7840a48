"""What each stage is told of a request, as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.errors import InvalidRequestError
from stagemesh.plan.values import Plan
from stagemesh.runtime import messages
from stagemesh.runtime.core.unread import share_of
from stagemesh.runtime.messages import Key, ProtocolError, Submit
from stagemesh.runtime.running import Call

_LARGEST: Final = 2**63 - 1
"""A number that takes as much room as any."""


def check_sendable(plan: Plan, call: Call) -> None:
    """Raise `InvalidRequestError` for a request that no stage could be told of, now or later."""
    if not 0 < len(call.request_id) <= messages.MAX_NAME:
        raise InvalidRequestError(f"a request's name has 1 to {messages.MAX_NAME} characters")
    submits_of(plan, Key(rid=call.request_id, epoch=_LARGEST), {}, call, _LARGEST)


def submits_of(
    plan: Plan,
    key: Key,
    route: Mapping[int, tuple[int, int]],
    call: Call,
    unread_bytes: int,
    trace: str | None = None,
) -> dict[int, bytes]:
    """Encode what each stage is told, consumers first.

    `route` has replica and incarnation of every stage that lives; `unread_bytes` are for all.
    """
    submits = {}
    num_finals = sum(stage.final_output_type is not None for stage in plan.stages)
    window = share_of(unread_bytes, num_finals)
    for stage in reversed(plan.stages):
        targets = {
            edge.target: route.get(edge.target, (_LARGEST, _LARGEST))
            for edge in plan.edges
            if edge.source == stage.stage_id
        }
        params = dict(call.params.get(stage.stage_id, {}))
        submit = Submit(
            key=key,
            params=params,
            targets=targets,
            window=window,
            progress=call.on_progress is not None,
            trace=trace,
        )
        try:
            submits[stage.stage_id] = messages.encode(submit)
        except (ProtocolError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidRequestError(f"the request cannot be sent: {error}") from error
    return submits
