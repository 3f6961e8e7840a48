"""What one replica puts out, on its way to the users: the shortest path that there is.

Everything that holds for all of its outputs is looked up once. Of each, the order is checked by the
machine of its request, the memory becomes the user's without a copy where it came in the ticket,
and the ticket is given back together with others of the same wake-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from stagemesh.plan.values import StagePlan
from stagemesh.runtime.edge import EdgeIn
from stagemesh.runtime.live import Live
from stagemesh.runtime.marks import hop_of
from stagemesh.runtime.messages import Attached, Chunk
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.running import Running, Seat
from stagemesh.runtime.telemetry import Observers


class Arrivals:
    """The outputs of one replica of a final stage."""

    def __init__(
        self,
        stage: StagePlan,
        seat: Seat,
        edge: EdgeIn,
        observers: Observers,
        lives: Mapping[str, Live],
    ) -> None:
        """They come on `edge`; `lives` are all requests by name."""
        self._stage: Final = stage.stage_id
        self._name: Final = stage.name
        self._kind: Final = stage.final_output_type or ""
        self._seat: Final = seat
        self._edge: Final = edge
        self._observers: Final = observers
        self._lives: Final = lives

    def take(self, chunk: Chunk, attached: Attached) -> str | None:
        """Take a chunk; return what is wrong with it, where its request is to end because of it."""
        key, edge = chunk.key, self._edge
        live = self._lives.get(key.rid)
        machine = None if live is None or live.key != key else live.machine
        if live is None or machine is None or not machine.running:
            edge.discard(chunk, attached)
            return None
        try:
            payload = edge.own(chunk, attached)
        except ValueError as refusal:
            return str(refusal)
        fault = machine.output(self._stage, chunk.seq, last=chunk.last)
        if fault is not None:
            edge.done(chunk, kept=False)
            return fault
        output = OmniOutput(
            request_id=key.rid,
            stage=self._name,
            kind=self._kind,
            payload=payload,
            final=chunk.last,
        )
        hand_over(output, live.running, chunk, edge)
        if self._observers.hear:
            hop = hop_of(self._stage, chunk, payload.num_bytes)
            self._observers.output(output, self._seat, hop)
        return None


def hand_over(output: OmniOutput, running: Running, chunk: Chunk, edge: EdgeIn) -> None:
    """Give an output to its user, and its ticket back; its credit now or when that was read."""
    is_credited = running.output(output)
    edge.done(chunk, kept=not is_credited)
    if not is_credited:
        running.owe(partial(edge.credit, chunk.key, (chunk.seq,)))
