"""What the stages are told of a request, as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stagemesh.errors import InvalidRequestError
from stagemesh.plan.values import Plan
from stagemesh.runtime import messages
from stagemesh.runtime.messages import Key, ProtocolError, Submit
from stagemesh.runtime.running import Call

LARGEST: Final = 2**63 - 1
"""An epoch, or a replica, that takes as much room as any."""


def encode_submits(plan: Plan, key: Key, route: Mapping[int, int], call: Call) -> dict[int, bytes]:
    """Return the frame for each stage, consumers first, so that all is known to be sendable.

    Raises `InvalidRequestError` when something is not. A route that is not known yet is as long as
    any.
    """
    submits = {}
    for stage in reversed(plan.stages):
        targets = {
            edge.target: route.get(edge.target, LARGEST)
            for edge in plan.edges
            if edge.source == stage.stage_id
        }
        params = dict(call.params.get(stage.stage_id, {}))
        submit = Submit(key=key, params=params, targets=targets)
        try:
            submits[stage.stage_id] = messages.encode(submit)
        except (ProtocolError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidRequestError(f"the request cannot be sent: {error}") from error
    return submits
