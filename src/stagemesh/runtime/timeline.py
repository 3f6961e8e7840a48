"""A timeline of requests, as a file that trace viewers open (Chrome's trace event format).

One process row for the caller and one for each replica, in it one thread row for each request: its
time there, and within that what it waited for and what the engine did. Hops of chunks lie across
the rows, each as a span at its consumer and an arrow from its producer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias

from stagemesh.errors import StagemeshError
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import Hop
from stagemesh.runtime.outputs import OmniOutput
from stagemesh.runtime.running import Seat
from stagemesh.runtime.telemetry import Observer, Outcome, StageMarks

_CALLER: Final = Seat(stage="caller", replica=0)
_MICROSECONDS: Final = 1e6
_HOP_PHASES: Final = ("b", "e", "s", "f")

Event: TypeAlias = dict[str, object]


class Timeline(Observer):
    """Writes down what happens to requests."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self._events: list[Event] = []
        self._rows: dict[Seat, int] = {}
        self._threads: dict[str, int] = {}
        self._named: set[tuple[int, int]] = set()
        self._opened: dict[str, float] = {}
        self._begun: dict[str, float] = {}
        self._seats: dict[str, Mapping[int, Seat]] = {}
        self._num_hops = 0
        self._row(_CALLER)

    def write(self, path: Path) -> None:
        """Write everything so far, by time."""
        events = sorted(self._events, key=lambda event: (event["ph"] != "M", event.get("ts", 0)))
        document = {"traceEvents": events, "displayTimeUnit": "ms"}
        path.write_text(json.dumps(document), encoding="utf-8")

    def opened(self, request: str) -> str:
        """Ask the stages for their marks."""
        self._threads.setdefault(request, len(self._threads) + 1)
        self._opened[request] = monotonic()
        return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"

    def begun(self, request: str, seats: Mapping[int, Seat]) -> None:
        """It has waited until now."""
        self._seats[request] = seats
        self._begun[request] = monotonic()

    def entered(self, request: str, seats: Mapping[int, Seat]) -> None:
        """More is known of where it goes."""
        self._seats[request] = {**self._seats[request], **seats}

    def output(self, output: OmniOutput, seat: Seat, hop: Hop) -> None:
        """A chunk has come to the caller."""
        del seat
        self._hop(output.request_id, hop, _CALLER)

    def stage_marks(self, request: str, found: StageMarks) -> None:
        """Write down the time in one stage, and the chunks that came there."""
        marks, seat = found.marks, found.seat
        self._span(request, seat, request, (marks.submitted, marks.closed))
        if marks.started is not None:
            over = marks.closed if marks.over is None else marks.over
            self._span(request, seat, "waits for input", (marks.submitted, marks.started))
            self._span(request, seat, "runs", (marks.started, max(over, marks.started)))
        for hop in marks.hops:
            self._hop(request, hop, seat)

    def ended(self, request: str, outcome: Outcome, error: StagemeshError | None) -> None:
        """Write down the whole of it."""
        opened, now = self._opened.pop(request), monotonic()
        told = {"outcome": outcome.value} | ({} if error is None else {"error": str(error)})
        self._span(request, _CALLER, request, (opened, now), told)
        begun = self._begun.pop(request, now)
        self._span(request, _CALLER, "queued", (opened, begun))

    def settled(self, request: str) -> None:
        """Nothing more comes of it."""
        self._seats.pop(request, None)

    def _hop(self, request: str, hop: Hop, seat: Seat) -> None:
        """A chunk went from one row to another; where its sending is unknown it only came."""
        seats = self._seats.get(request, {})
        source = _CALLER if hop.source == CALLER else seats.get(hop.source, _CALLER)
        name = f"chunk {hop.seq} from {source.stage}"
        told = {"bytes": hop.num_bytes}
        self._num_hops += 1
        number, sent = self._num_hops, hop.sent or hop.taken
        for phase, at in (("b", sent), ("e", hop.taken)):
            self._add(request, seat, at, {"ph": phase, "name": name, "id": number, "args": told})
        if hop.sent:
            arrow = {"name": name, "id": number}
            self._add(request, source, sent, {"ph": "s", **arrow})
            self._add(request, seat, hop.taken, {"ph": "f", "bp": "e", **arrow})

    def _span(
        self,
        request: str,
        seat: Seat,
        name: str,
        times: tuple[float, float],
        told: Mapping[str, object] | None = None,
    ) -> None:
        began, ended = (_microseconds(time) for time in times)
        event: Event = {"ph": "X", "name": name, "dur": ended - began, "args": told or {}}
        self._add(request, seat, times[0], event)

    def _add(self, request: str, seat: Seat, at: float, event: Event) -> None:
        row, thread = self._row(seat), self._threads[request]
        if (row, thread) not in self._named:
            self._named.add((row, thread))
            self._name("thread_name", row, thread, request)
        category = "hop" if event["ph"] in _HOP_PHASES else "request"
        place = {"ts": _microseconds(at), "pid": row, "tid": thread, "cat": category}
        self._events.append({**event, **place})

    def _row(self, seat: Seat) -> int:
        if seat not in self._rows:
            row = self._rows[seat] = len(self._rows) + 1
            name = seat.stage if seat == _CALLER else f"{seat.stage} replica {seat.replica}"
            self._name("process_name", row, 0, name)
        return self._rows[seat]

    def _name(self, what: str, row: int, thread: int, name: str) -> None:
        event = {"ph": "M", "name": what, "pid": row, "tid": thread, "args": {"name": name}}
        self._events.append(event)


def _microseconds(seconds: float) -> int:
    """Whole ones: what touches in time touches in the file as well."""
    return round(seconds * _MICROSECONDS)
