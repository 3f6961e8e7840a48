"""One request as its user holds it: outputs as they appear, then the end.

What the user has not read is bounded: beyond that the stages get no credit for more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Self, TypeAlias

from stagemesh.errors import PromptsError, StagemeshError
from stagemesh.runtime.audio import Audio
from stagemesh.runtime.core.actions import SessionRoute
from stagemesh.runtime.core.unread import Unread
from stagemesh.runtime.hints import RouteHints
from stagemesh.runtime.messages import Finished
from stagemesh.runtime.outputs import (
    OmniOutput,
    OmniResult,
    StageProgress,
    StageReport,
    StageState,
)
from stagemesh.spec.frozen import frozen
from stagemesh.spec.payload import Payload

UNREAD_BYTES: Final = 8 * 1024 * 1024
"""How much output of one request may be unread, unless something else is said."""


@frozen
class FrontendLimits:
    """What a frontend takes on."""

    queue_limit: int | None = None
    """Requests beyond those that the entry stage serves at a time; `None` for any number."""
    unread_bytes: int = UNREAD_BYTES
    """Output of a request that may be unread."""
    frontend: int = 0
    """Which of the plan's frontends it is: sessions are placed in the groups of that one."""


OnProgress = Callable[[StageProgress], None]
"""Hears of every step forward of a request, on the frontend's thread."""


@frozen
class Call:
    """Everything that a request is submitted with."""

    request_id: str
    """Its name, unique among those that run."""
    prompt: Payload
    """Input of the entry stages."""
    params: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """Parameters by stage id."""
    timeout_s: float | None = None
    """How long it may take; `None` for as long as it takes."""
    on_progress: OnProgress | None = None
    """Hears of progress."""
    route: RouteHints = field(default_factory=RouteHints)
    """Where it would like to be served."""
    session: SessionRoute | None = None
    """The session that it is a turn of."""


@frozen
class Seat:
    """Where a request sits in one stage."""

    stage: str
    """Name of the stage."""
    replica: int
    """The replica it is bound to."""

    def __str__(self) -> str:
        return f"stage `{self.stage}` replica `{self.replica}`"


Seats: TypeAlias = Mapping[int, Seat]
"""Where it sits, by stage id."""


class Running(AsyncIterator[OmniOutput]):
    """A request from submission to its end; iterate over its outputs, and close it in any case."""

    def __init__(
        self, call: Call, leave: Callable[[], None], unread_bytes: int = UNREAD_BYTES
    ) -> None:
        """`leave` is called when the user goes, whether the request has ended or not.

        At most `unread_bytes` wait to be read, however long the user does not come.
        """
        self.name: Final = call.request_id
        self._seats: Mapping[int, Seat] = {}
        self._on_progress = call.on_progress
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._ended: float | None = None
        self._unseen: deque[OmniOutput] = deque()
        self._is_over = False
        self._readers: list[asyncio.Future[None]] = []
        """Whoever waits for the next output, or the end."""
        self._unread = Unread(unread_bytes)
        self._credits: deque[Callable[[], None]] = deque()
        """What gives the credit of outputs whose credit is kept, in order."""
        self._error: StagemeshError | None = None
        self._reports: dict[int, StageReport] = {}
        self._first_outputs: dict[str, float] = {}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OmniOutput:
        """The next output; at the end raises, once, the request's error when it failed."""
        while not (self._unseen or self._is_over):
            await self._news()
        if self._unseen:
            if self._ended is None and (num_credited := self._unread.read()):
                self._give_credit(num_credited)
            return self._unseen.popleft()
        error, self._error = self._error, None
        if error is None:
            raise StopAsyncIteration
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, and neither should hold the other

    def close(self) -> None:
        """Leave the request: it is cancelled where it still runs, and what is unread is gone."""
        self._leave()
        self._unseen.clear()
        self._over()

    async def result(self) -> OmniResult:
        """Wait for the end and put all outputs together."""
        outputs = tuple([output async for output in self])
        texts = [output.text for output in outputs if output.text is not None]
        return OmniResult(
            request_id=self.name,
            text="".join(texts) if texts else None,
            audio=Audio.joined(output.audio for output in outputs if output.audio is not None),
            outputs=outputs,
            report=self.report,
            seconds=self.seconds,
            first_output_s=self.first_output_s,
        )

    @property
    def report(self) -> tuple[StageReport, ...]:
        """What each stage that is done did, by ascending stage id."""
        return tuple(self._reports[stage] for stage in sorted(self._reports))

    @property
    def seconds(self) -> float:
        """Time from submission to the end, or until now."""
        return (self._loop.time() if self._ended is None else self._ended) - self._began

    @property
    def first_output_s(self) -> Mapping[str, float]:
        """Time from submission to the first output at the caller, by final stage."""
        return dict(self._first_outputs)

    def begin(self, seats: Mapping[int, Seat]) -> None:
        """These replicas are told, the first ones when there is room for it."""
        self._seats = {**self._seats, **seats}
        for stage in seats:
            self.progress(stage, StageState.WAITING, {})

    @property
    def unread_bytes(self) -> int:
        """What has come and was not read; after the end nothing is counted any more."""
        return self._unread.used

    def output(self, output: OmniOutput) -> bool:
        """The frontend has an output; whether its stage has credit for more, or it is owed."""
        if output.stage not in self._first_outputs:
            self._first_outputs[output.stage] = self._loop.time() - self._began
        self._unseen.append(output)
        self._wake()
        return self._unread.came(output.payload.weight)

    def owe(self, credit: Callable[[], None]) -> None:
        """Call `credit` for the output that came last, once the user has read so far."""
        self._credits.append(credit)

    def _give_credit(self, num_outputs: int) -> None:
        for _ in range(num_outputs):
            self._credits.popleft()()

    def finished(self, stage: int, finished: Finished) -> None:
        """A stage is done."""
        seat = self._seats[stage]
        self._reports[stage] = StageReport(
            stage=seat.stage,
            replicas=(seat.replica,),
            num_requests=1,
            seconds=finished.seconds,
            first_output_s=finished.first_output_s,
            units=finished.units,
        )
        self.progress(stage, StageState.FINISHED, finished.units)

    def progress(self, stage: int, state: StageState, units: Mapping[str, float]) -> None:
        """A stage has got on."""
        if self._on_progress is not None:
            seat = self._seats[stage]
            news = StageProgress(
                request_id=self.name,
                stage=seat.stage,
                replica=seat.replica,
                state=state,
                units=units,
            )
            # In a turn of its own, so that what the user's function raises hits nobody else.
            self._loop.call_soon(self._on_progress, news)

    def end(self, error: StagemeshError | None) -> None:
        """The request is over."""
        self._ended = self._loop.time()
        self._error = error
        self._give_credit(self._unread.clear())  # nothing follows that it could bring
        self._over()

    def _over(self) -> None:
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            if not reader.done():
                reader.set_result(None)
        self._readers.clear()

    def _news(self) -> asyncio.Future[None]:
        """Done once something has come, or the end."""
        if self._readers:  # whoever has given up waiting is not to be kept
            self._readers = [reader for reader in self._readers if not reader.done()]
        reader = self._loop.create_future()
        self._readers.append(reader)
        return reader


async def run_all(runs: Sequence[Coroutine[Any, Any, OmniResult]]) -> list[OmniResult]:
    """Wait for all, whichever fail; a single one fails with its own error."""
    tasks = [asyncio.ensure_future(_settled(run)) for run in runs]
    try:
        ended = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    failures = {at: end for at, end in enumerate(ended) if isinstance(end, StagemeshError)}
    results = [None if isinstance(end, StagemeshError) else end for end in ended]
    if failures and len(ended) == 1:
        raise failures[0]
    if failures:
        raise PromptsError(results, failures)
    return [result for result in results if result is not None]


async def _settled(run: Coroutine[Any, Any, OmniResult]) -> OmniResult | StagemeshError:
    try:
        return await run
    except StagemeshError as error:
        return error
