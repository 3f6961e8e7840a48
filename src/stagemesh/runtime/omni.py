"""`AsyncOmni` and `Omni`: a planned model, running. Both stop everything that they started."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from stagemesh.config.inputs import ConfigInput, PlanInputs
from stagemesh.errors import ClosedError, DiagnosticError
from stagemesh.plan.values import Plan
from stagemesh.runtime.calls import REQUEST_S, Calls, Prompt
from stagemesh.runtime.checks import check_limits, check_runnable, check_timeout
from stagemesh.runtime.frontend import Frontend
from stagemesh.runtime.given_plan import given_fields, plan_of, startup_s
from stagemesh.runtime.health import Health, SystemState
from stagemesh.runtime.hints import RouteHints
from stagemesh.runtime.launchers.choose import launcher_of
from stagemesh.runtime.loop_thread import LoopThread
from stagemesh.runtime.outputs import OmniOutput, OmniResult
from stagemesh.runtime.params import SamplingParams
from stagemesh.runtime.replica import ReplicaId
from stagemesh.runtime.running import UNREAD_BYTES, FrontendLimits, OnProgress, Running, run_all
from stagemesh.runtime.scaling import scaled
from stagemesh.runtime.session import Session
from stagemesh.runtime.supervisor import Supervisor
from stagemesh.runtime.telemetry import Measures, Observers
from stagemesh.spec.payload import Payload
from stagemesh.spec.unset import UNSET, Unset

_CLOSE_S: Final = 60.0
"""More than all deadlines of `AsyncOmni.close` together."""


class AsyncOmni:
    """A model that runs for the loop on which it is started."""

    def __init__(  # noqa: PLR0913  the front door: what runs, and the limits of it
        self,
        model: str | Plan,
        *,
        strategy_config: ConfigInput | Unset = UNSET,
        deploy_config: ConfigInput | Unset = UNSET,
        stage_overrides: str | Mapping[str, object] | Unset = UNSET,
        devices: str | int | Unset = UNSET,
        queue_limit: int | None = None,
        unread_bytes: int = UNREAD_BYTES,
        frontend: int = 0,
        **fields: object,
    ) -> None:
        """Plan `model`, or take a plan as it is; nothing is started yet.

        `queue_limit` requests are taken on beyond those that the first stage can serve at a time,
        and further ones end with `OverloadedError`; `None` takes on all. While `unread_bytes` of
        output of a request wait to be read, or are on their way, its stages put out no more. Of the
        plan's frontends it is number `frontend`, which says what sessions it may hold.

        `fields` are what flags say for all stages, such as `tensor_parallel_size=2`,
        `async_chunk=False` or `default_sampling_params={"thinker": {"temperature": 0.5}}`; a
        `DiffusionParallelConfig` as `parallel_config` is laid over every diffusion stage.
        Raises `DiagnosticError` with all mistakes, or with the reasons why the plan cannot be run.
        """
        inputs = PlanInputs(
            model="" if isinstance(model, Plan) else model,
            strategy_config=strategy_config,
            deploy_config=deploy_config,
            stage_overrides=stage_overrides,
            fields=given_fields(fields),
            devices=devices,
        )
        self.plan = plan_of(model, inputs)
        if found := check_runnable(self.plan) + check_limits(queue_limit, unread_bytes):
            raise DiagnosticError(found)
        self.observers: Final = Observers()
        self._frontend_of = partial(
            Frontend,
            limits=FrontendLimits(
                queue_limit=queue_limit, unread_bytes=unread_bytes, frontend=frontend
            ),
        )
        self._calls = Calls(self.plan)
        self._supervisor: Supervisor | None = None
        self._frontend: Frontend | None = None
        self._scaling = asyncio.Lock()
        self._closed = False

    @property
    def pids(self) -> Mapping[ReplicaId, int]:
        """The stage processes that run."""
        return {} if self._supervisor is None else self._supervisor.pids

    async def start(self, *, timeout_s: float | None = None) -> None:
        """Start every stage; raises `StartupError`, with all stopped again, when one fails.

        Without `timeout_s` they have as long as the plan says: its `init_timeout` for all of them,
        and its `stage_init_timeout` for each, which begin together.
        """
        if self._closed or self._supervisor is not None:
            raise ClosedError("a system is started once")
        if timeout_s is None:
            timeout_s = startup_s(self.plan)
        if found := check_timeout(timeout_s):
            raise DiagnosticError(found)
        self._supervisor = Supervisor(self.plan, launcher_of(self.plan))
        callers = await self._supervisor.start(timeout_s)
        lost, heard = self._supervisor.lost, self.observers
        self._frontend = self._frontend_of(self.plan, callers, lost, observers=heard)
        self._supervisor.watch(self._frontend)

    def health(self) -> Health:
        """Say how the system is, and every replica of every stage."""
        stages = () if self._supervisor is None else self._supervisor.health
        if self._closed:
            return Health(state=SystemState.STOPPED, stages=stages)
        if self._frontend is None:
            return Health(state=SystemState.STARTING, stages=stages)
        return Health.of(stages, is_draining=self._frontend.draining)

    def measures(self) -> Measures:
        """Say what the caller's side of the system counts."""
        lag_s = 0.0 if self._supervisor is None else self._supervisor.loop_lag_s
        if self._frontend is None:
            return Measures(loop_lag_s=lag_s)
        return Measures(
            loop_lag_s=lag_s,
            traffic=self._frontend.traffic,
            counts=self._frontend.counts,
            sessions=self._frontend.desk.counts,
        )

    async def scale(self, stage: str, num_replicas: int, *, drain_s: float | None = None) -> Plan:
        """Give a stage more replicas, or fewer, while it runs; return what is planned now.

        New ones are used once they are ready; those that leave, the last ones first, have `drain_s`
        for what they do, the plan's `shutdown_timeout` when not given. A replica that had died too
        often is started again. Raises `DiagnosticError` when the stage cannot have as many, with
        nothing changed, and `StartupError` when a new one does not come up.
        """
        self._started()
        assert self._supervisor is not None, "it was started"
        if drain_s is None:
            drain_s = float(self.plan.launch.shutdown_timeout)
        async with self._scaling:
            plan = scaled(self.plan, stage, num_replicas)
            await self._supervisor.scale(plan, drain_s)
            self.plan = plan
        return plan

    async def drain(self, timeout_s: float | None = None) -> bool:
        """Take no more requests and wait for those that run; whether all of them ended in time.

        Without `timeout_s` they have as long as `shutdown_timeout` of the plan says.
        """
        if self._frontend is None:
            return True
        self._frontend.drain()
        if timeout_s is None:
            timeout_s = float(self.plan.launch.shutdown_timeout)
        idle = self._frontend.idle()
        await asyncio.wait([idle], timeout=timeout_s)
        return idle.done()

    def submit(
        self,
        prompt: Prompt,
        *,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        timeout_s: float | None = REQUEST_S,
        on_progress: OnProgress | None = None,
        route: RouteHints | None = None,
    ) -> Running:
        """Start a request; iterate over what it returns for outputs, and close that in any case.

        `sampling_params` are by stage name, `route` says what a stage may route it by. Raises
        `DiagnosticError` for what is wrong with the request, and `RequestError` when it cannot be
        taken.
        """
        call = self._calls.of(prompt, sampling_params, request_id, timeout_s, on_progress, route)
        return self._started().open(call)

    async def open_session(self, *, timeout_s: float | None = REQUEST_S) -> Session:
        """Open a full-duplex session, which holds one replica of every stage until it is closed.

        Raises `SessionRefusedError` when there is no place for it now, another `RequestError` when
        a stage does not take it or is not in time, and `SessionModeError` where the plan has no
        sessions. Close what is returned in any case.
        """
        if found := check_timeout(timeout_s):
            raise DiagnosticError(found)
        frontend = self._started()
        if frontend.draining:
            raise ClosedError("the system takes no more sessions: it is shutting down")
        return await frontend.desk.open(self._calls, timeout_s)

    async def generate(
        self,
        prompt: Prompt,
        *,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        timeout_s: float | None = REQUEST_S,
        on_progress: OnProgress | None = None,
        route: RouteHints | None = None,
    ) -> AsyncGenerator[OmniOutput, None]:
        """Give outputs as they appear; leaving the iteration cancels the request everywhere.

        Arguments and errors are those of `submit`, and `RequestError` when the request fails.
        """
        running = self.submit(
            prompt,
            sampling_params=sampling_params,
            request_id=request_id,
            timeout_s=timeout_s,
            on_progress=on_progress,
            route=route,
        )
        try:
            async for output in running:
                yield output
        finally:
            running.close()

    async def run(
        self,
        prompt: Prompt,
        *,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        timeout_s: float | None = REQUEST_S,
        on_progress: OnProgress | None = None,
        route: RouteHints | None = None,
    ) -> OmniResult:
        """Like `generate`, but wait for the end and return everything together."""
        running = self.submit(
            prompt,
            sampling_params=sampling_params,
            request_id=request_id,
            timeout_s=timeout_s,
            on_progress=on_progress,
            route=route,
        )
        try:
            return await running.result()
        finally:
            running.close()

    async def close(self) -> None:
        """Fail what runs and stop every stage; calling it again does nothing."""
        self._closed = True
        if self._frontend is not None:
            self._frontend.close()
        if self._supervisor is not None:
            await self._supervisor.stop()

    def kill(self) -> None:
        """End every stage process at once; may be called from any thread."""
        if self._supervisor is not None:
            self._supervisor.kill()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _started(self) -> Frontend:
        if self._frontend is None or self._closed:
            raise ClosedError("the system is closed" if self._closed else "it is not started")
        return self._frontend


class Omni:
    """A running model for synchronous callers, on any thread; started when constructed."""

    def __init__(  # noqa: PLR0913  the front door: what runs, and the limits of it
        self,
        model: str | Plan,
        *,
        strategy_config: ConfigInput | Unset = UNSET,
        deploy_config: ConfigInput | Unset = UNSET,
        stage_overrides: str | Mapping[str, object] | Unset = UNSET,
        devices: str | int | Unset = UNSET,
        queue_limit: int | None = None,
        unread_bytes: int = UNREAD_BYTES,
        **fields: object,
    ) -> None:
        """Plan `model`, or take a plan as it is, and start it; arguments as of `AsyncOmni`.

        Raises `DiagnosticError` with all mistakes, or `StartupError` with all stopped again.
        """
        self._system = AsyncOmni(
            model,
            strategy_config=strategy_config,
            deploy_config=deploy_config,
            stage_overrides=stage_overrides,
            devices=devices,
            queue_limit=queue_limit,
            unread_bytes=unread_bytes,
            frontend=0,
            **fields,
        )
        self._thread = LoopThread()
        # Also when the object is forgotten, and at the exit of the interpreter.
        self._finalizer = weakref.finalize(self, _shut_down, self._system, self._thread)
        try:
            self._thread.call(self._system.start())
        except BaseException:
            self.close()
            raise

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self._system.plan

    @property
    def observers(self) -> Observers:
        """Who hears of what happens."""
        return self._system.observers

    @property
    def pids(self) -> Mapping[ReplicaId, int]:
        """The stage processes that run."""
        return self._system.pids

    def health(self) -> Health:
        """Say how the system is, and every replica of every stage."""
        return self._system.health()

    def scale(self, stage: str, num_replicas: int, *, drain_s: float | None = None) -> Plan:
        """Give a stage more replicas, or fewer, while it runs; see `AsyncOmni.scale`."""
        return self._thread.call(self._system.scale(stage, num_replicas, drain_s=drain_s))

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        *,
        sampling_params: SamplingParams | None = None,
        timeout_s: float | None = REQUEST_S,
        on_progress: OnProgress | None = None,
    ) -> list[OmniResult]:
        """Run all prompts at once; return their results in order.

        When some of several fail the others run to their end, and `PromptsError` keeps what they
        gave; a single prompt raises its own error. `on_progress` is called on
        the thread of the runtime, and cannot wait for more results itself.
        """
        if not self._finalizer.alive:
            raise ClosedError("the system is closed")
        several = [prompts] if isinstance(prompts, str | Payload) else list(prompts)

        def run(prompt: Prompt) -> Coroutine[Any, Any, OmniResult]:
            return self._system.run(
                prompt,
                sampling_params=sampling_params,
                timeout_s=timeout_s,
                on_progress=on_progress,
            )

        return self._thread.call(run_all([run(prompt) for prompt in several]))

    def close(self) -> None:
        """Fail what runs and stop every stage; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _shut_down(system: AsyncOmni, thread: LoopThread) -> None:
    try:
        if not thread.is_current:  # the garbage collector may run anywhere, and must not wait
            thread.call(system.close(), timeout_s=_CLOSE_S)
    finally:
        system.kill()
        thread.stop()
