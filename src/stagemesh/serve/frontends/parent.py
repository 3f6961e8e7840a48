"""`stagemesh serve` with several frontends: takes the port, keeps a process for each, ends all.

The server is up when every frontend is. From then on one that dies takes its requests and sessions
with it, and nothing else: the others go on, and it is started again as the restart policies of its
stages allow. One that hangs is ended first. What is asked about the server as a whole is answered
here, whoever was asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from stagemesh.errors import StagemeshError, StartupError
from stagemesh.plan.rules.frontends import quota
from stagemesh.plan.save import to_json
from stagemesh.plan.values import Plan
from stagemesh.runtime.core.membership import Membership, Restart, RestartPolicy
from stagemesh.runtime.given_plan import startup_s
from stagemesh.runtime.health import ReplicaState, SystemState
from stagemesh.runtime.replica import policy_of
from stagemesh.runtime.scaling import scaled
from stagemesh.serve import forms
from stagemesh.serve.control import Control
from stagemesh.serve.forms import Json
from stagemesh.serve.frontends.process import FrontendProcess
from stagemesh.serve.frontends.share import share_of
from stagemesh.serve.frontends.watch import Watch
from stagemesh.serve.frontends.whole import (
    Sight,
    state_of,
    whole_health,
    whole_metrics,
    whole_state,
)
from stagemesh.serve.frontends.words import Begin, Tell, Told
from stagemesh.serve.server import Listening, ServeOptions
from stagemesh.serve.sockets import SharedPort, control_path, listen_at, url_of
from stagemesh.spec.frozen import frozen

_LOOK_S: Final = 2.0
"""How long a frontend may take to say how it is."""
_MARGIN_S: Final = 60.0
"""How long a frontend may take beyond the deadlines that it keeps itself."""
_AT_ONCE_S: Final = 10.0
"""How long it may take to end at once."""
_KILL_S: Final = 10.0
_JSON: Final = "application/json"
_log: Final = logging.getLogger(__name__)


@frozen
class FrontendLog:
    """What frontends write of what they do."""

    form: str | None = None
    """How every request is logged; `None` for not at all."""
    debug: bool = False
    """Whether everything that stages write is shown."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Frontend:
    """One frontend, across all processes that it has been and will be."""

    number: int
    share: Plan
    state: ReplicaState = ReplicaState.STARTING
    process: FrontendProcess | None = None
    incarnation: int = 0
    num_restarts: int = 0
    reason: str | None = None

    @property
    def running(self) -> FrontendProcess | None:
        """Its process, while it has one."""
        return self.process if self.process is not None and self.process.pid is not None else None


class Frontends:
    """One model, served by several processes. All methods belong to one loop."""

    def __init__(self, plan: Plan, options: ServeOptions, log: FrontendLog | None = None) -> None:
        """Nothing is started yet."""
        self._plan = plan
        self._options = options
        self._log = log or FrontendLog()
        number = plan.launch.api_server_count
        self._all = [_Frontend(number=one, share=share_of(plan, one)) for one in range(number)]
        self._members = Membership(_policy(plan))
        self._stop = asyncio.Event()
        self._abandoned = asyncio.Event()
        self._has_served = False
        self._port: SharedPort | None = None
        self._control: web.AppRunner | None = None
        self._listening: Listening | None = None
        self._keepers: list[asyncio.Task[None]] = []
        self._watch: Watch | None = None

    async def run(self, on_ready: Callable[[Listening], None]) -> None:
        """Serve until `stop`; everything that was started is stopped when this returns.

        `on_ready` is called once when all frontends serve. Raises `DiagnosticError` when the
        address cannot be listened on, `StartupError` when a frontend does not come up or, later,
        when none is left.
        """
        try:
            listening = await self._listen()
            if await self._started():
                on_ready(listening)
                await _first(self._stop.wait(), self._abandoned.wait())
                if self._abandoned.is_set():
                    told = ", ".join(f"`{one.number}` {one.reason}" for one in self._all)
                    raise StartupError(f"no frontend is left to serve: {told}")
        finally:
            await self._close()

    def stop(self) -> None:
        """Let all frontends drain; a second call ends everything at once."""
        if self._stop.is_set():
            asyncio.get_running_loop().call_later(_AT_ONCE_S, self._kill)
        self._stop.set()
        for one in self._all:
            if one.running is not None:
                one.running.stop()

    # --- what is known of all ------------------------------------------------------------------

    async def state(self) -> Json:
        """Say everything that is known of all frontends and their stages."""
        sights = await self._look()
        return whole_state(self._plan, self._state_of(sights), sights)

    async def scale(self, stage: str, replicas: int) -> None:
        """Start those of a stage again that had died too often; groups keep their replicas.

        Raises `DiagnosticError` where that is not all that is wanted, `StartupError` when one does
        not come up.
        """
        scaled(self._plan, stage, replicas)
        running = [one.running for one in self._all if one.running is not None]
        await asyncio.gather(*(each.restore(stage) for each in running))

    async def _answer(self, tell: Tell) -> Told:
        """Answer for all, in place of the frontend that was asked."""
        sights = await self._look()
        state = self._state_of(sights)
        status = HTTPStatus.OK
        if tell.what == "metrics":
            body, content_type = whole_metrics(sights, tell.accept)
        else:
            body, content_type = forms.document(self._health(state, sights)), _JSON
            if state is not SystemState.SERVING:
                status = HTTPStatus.SERVICE_UNAVAILABLE
        return Told(number=tell.number, status=status, content_type=content_type, body=body)

    def _health(self, state: SystemState, sights: Sequence[Sight]) -> Json:
        return whole_health(whole_state(self._plan, state, sights))

    def _state_of(self, sights: Sequence[Sight]) -> SystemState:
        return state_of(sights, is_draining=self._stop.is_set(), has_served=self._has_served)

    async def _look(self) -> Sequence[Sight]:
        return await asyncio.gather(*map(self._seen, self._all))

    async def _seen(self, one: _Frontend) -> Sight:
        process = one.running
        seen = None if process is None else await process.look(_LOOK_S)
        state, reason = one.state, one.reason
        if seen is None and state is ReplicaState.SERVING:
            state, reason = ReplicaState.UNHEALTHY, "it does not answer"
        return Sight(
            frontend=one.number,
            state=state,
            pid=None if process is None else process.pid,
            num_restarts=one.num_restarts,
            reason=reason,
            share=one.share,
            seen=seen,
        )

    # --- how they come up ----------------------------------------------------------------------

    async def _listen(self) -> Listening:
        self._port = SharedPort(self._options.host, self._options.port)
        host, port = self._port.address
        path = self._options.control or control_path(port)
        runner = web.AppRunner(Control(self).app(), access_log=None, shutdown_timeout=0)
        self._control = runner
        await runner.setup()
        await web.SockSite(runner, listen_at(path)).start()
        self._listening = Listening(url=url_of(host, port), control=path)
        return self._listening

    async def _started(self) -> bool:
        """Start all; `False` when the server was told to stop meanwhile."""
        await _first(self._stop.wait(), self._all_up())
        if self._stop.is_set():
            return False
        self._has_served = True
        self._keepers = [asyncio.ensure_future(self._keep(one)) for one in self._all]
        self._watch = Watch(self._serving)
        return True

    def _serving(self) -> Iterable[FrontendProcess]:
        """Return those that have come up: what loads may hold its loop for long."""
        return [
            one.running
            for one in self._all
            if one.running is not None and one.state is ReplicaState.SERVING
        ]

    async def _all_up(self) -> None:
        """Bring all up together; raises the error of the first that does not come up."""
        ups = [asyncio.ensure_future(self._up(one)) for one in self._all]
        try:
            await asyncio.gather(*ups)
        finally:
            for up in ups:
                up.cancel()
            await asyncio.gather(*ups, return_exceptions=True)

    async def _up(self, one: _Frontend) -> None:
        """Start a process and wait until it serves; raises why it does not."""
        if self._stop.is_set():
            raise StartupError("the server was told to stop")
        one.incarnation += 1
        one.state = ReplicaState.STARTING
        self._members.expected(one.number, one.incarnation)
        assert self._port is not None, "the port was taken first"
        try:
            begin = self._begin(one)
            process = one.process = FrontendProcess(begin, self._port.door(), self._answer)
        except OSError as error:
            raise StartupError(f"{_who(one)} could not be started: {error}") from error
        within_s = startup_s(self._plan) + _MARGIN_S
        await asyncio.wait(
            (process.ready, process.exited),
            timeout=within_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if process.exited.done():
            raise process.error
        if not process.ready.done():
            process.kill()
            raise StartupError(f"{_who(one)} is not ready after {within_s:g} s")
        one.state = ReplicaState.SERVING
        one.reason = None
        self._members.ready(one.number, one.incarnation)

    def _begin(self, one: _Frontend) -> Begin:
        options, limit = self._options, self._options.queue_limit
        return Begin(
            plan=to_json(one.share),
            frontend=one.number,
            key=options.key.token,
            queue_limit=None if limit is None else quota(one.number, limit, len(self._all)),
            max_request_bytes=options.max_request_bytes,
            max_unread_bytes=options.max_unread_bytes,
            log_format=self._log.form,
            debug=self._log.debug,
        )

    async def _keep(self, one: _Frontend) -> None:
        """Bring a frontend back whenever it has ended, as often as its policy allows."""
        reason: str | None = None
        while not self._stop.is_set():
            if reason is None and one.process is not None:
                await asyncio.wait((one.process.exited,))  # which lives on when this is cancelled
                reason = one.process.exited.result()
            if self._stop.is_set():
                return
            one.reason = reason
            _log.warning("%s %s", _who(one), reason)
            now = asyncio.get_running_loop().time()
            changes = self._members.ended(one.number, one.incarnation, now)
            again = next((change for change in changes if isinstance(change, Restart)), None)
            if again is None:
                self._given_up(one)
                return
            one.state = ReplicaState.RESTARTING
            await asyncio.sleep(again.delay_s)
            reason = await self._again(one)

    async def _again(self, one: _Frontend) -> str | None:
        """Start it again; return why it did not come up."""
        one.num_restarts += 1
        try:
            await self._up(one)
        except StagemeshError as error:
            return f"did not come up: {error}"
        _log.warning("%s is back", _who(one))
        return None

    def _given_up(self, one: _Frontend) -> None:
        one.state = ReplicaState.STOPPED
        _log.error("%s stays down: the restart policies of its stages allow no more", _who(one))
        if all(each.state is ReplicaState.STOPPED for each in self._all):
            self._abandoned.set()

    # --- how they end --------------------------------------------------------------------------

    def _kill(self) -> None:
        for one in self._all:
            if one.process is not None:
                one.process.kill()

    async def _ended(self, within_s: float) -> None:
        ends = [one.process.exited for one in self._all if one.process is not None]
        if ends:
            await asyncio.wait(ends, timeout=within_s)

    async def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()  # whoever drains has a deadline of its own
        if not self._stop.is_set():
            self.stop()  # nobody is brought back, and what there is goes
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        within_s = float(self._plan.launch.shutdown_timeout) + _MARGIN_S
        try:
            await self._ended(within_s)
        finally:
            self._kill()
        await self._ended(_KILL_S)
        if self._control is not None:
            await self._control.cleanup()
        if self._listening is not None and self._listening.control is not None:
            self._listening.control.unlink(missing_ok=True)
        if self._port is not None:
            self._port.close()


def _who(one: _Frontend) -> str:
    return f"frontend `{one.number}`"


def _policy(plan: Plan) -> RestartPolicy:
    """When a frontend is started again, which starts every stage again: as the strictest says."""
    policies = [policy_of(stage.setup.recovery) for stage in plan.stages]
    return RestartPolicy(
        mode="never" if any(each.mode == "never" for each in policies) else "on_failure",
        most=min(each.most for each in policies),
        window_s=max(each.window_s for each in policies),
        first_delay_s=max(each.first_delay_s for each in policies),
        longest_delay_s=max(each.longest_delay_s for each in policies),
    )


async def _first(*works: Coroutine[Any, Any, object]) -> None:
    """Wait until one is done, and stop the others; raises what that one raises."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
