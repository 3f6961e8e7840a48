"""`python -m stagemesh.runtime.stage_main FD`: the process of one replica of one stage.

The descriptor is the control stream to the supervisor, which says everything else. SIGINT is
ignored: whoever started the system decides what an interrupt means.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from stagemesh.plan.values import Plan, StagePlan
from stagemesh.runtime.declared import declared_stage
from stagemesh.runtime.inbox import Inbox
from stagemesh.runtime.options import typed
from stagemesh.runtime.stage_io import Assignment, StageIO
from stagemesh.runtime.stage_loop import CALLER, StageLoop, Target
from stagemesh.spec.bridge import BridgeFactory
from stagemesh.spec.engine import Engine, EngineContext
from stagemesh.spec.reference import resolve
from stagemesh.spec.registry import ENGINES

_SWITCH_INTERVAL_S: Final = 0.001
"""How long the engine may keep the I/O thread waiting for the interpreter."""


def main() -> int:
    """Run the stage until it is told to stop; the exit code is 0 when it was."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    inbox = Inbox()
    io = StageIO(socket.socket(fileno=int(sys.argv[1])), inbox)
    assignment = io.start()
    try:
        _run(assignment, io, inbox)
    except Exception as error:  # noqa: BLE001  the edge of a process: engines are foreign code
        with contextlib.suppress(OSError):  # nobody reads it
            traceback.print_exc()
        io.stop(fatal=f"{type(error).__name__}: {error}")
        return 1
    io.stop()
    return 0


def _run(assignment: Assignment, io: StageIO, inbox: Inbox) -> None:
    began = time.monotonic()
    targets = _targets(assignment.plan, assignment.stage)
    engine = _engine(assignment.plan, assignment.stage, assignment.replica)
    try:
        engine.load()
        io.ready(time.monotonic() - began)
        StageLoop(engine, targets, inbox, io.emit).run()
    finally:
        engine.close()


def _engine(plan: Plan, stage: StagePlan, replica: int) -> Engine:
    (spec,) = ENGINES.load(stage.engine)
    rank = stage.replicas[replica].ranks[0]
    declared = declared_stage(plan, stage.name)
    kind = plan.devices.kind
    context = EngineContext(
        stage=stage.name,
        checkpoint=Path(plan.checkpoint.path),
        model_subdir=stage.model_subdir,
        loader=stage.loader,
        device=kind if kind == "cpu" else f"{kind}:{rank.device}",
        rank=rank.rank,
        world_size=stage.world_size,
        async_chunk=plan.async_chunk,
        owns_tokenizer=stage.owns_tokenizer,
        args=typed(spec.options, stage.engine_args),
        model_args=typed(declared.options, stage.model_args),
        model_params=declared.params,
    )
    return cast("Any", resolve(spec.factory))(context)  # type: ignore[no-any-return]


def _targets(plan: Plan, stage: StagePlan) -> Mapping[int, Target]:
    targets = {
        edge.target: Target(
            bridge=None if edge.bridge is None else cast("BridgeFactory", resolve(edge.bridge)),
            chunked=edge.chunked,
        )
        for edge in plan.edges
        if edge.source == stage.stage_id
    }
    if stage.final_output_type is not None:
        targets[CALLER] = Target(bridge=None, chunked=True)
    return targets


if __name__ == "__main__":
    code = main()
    with contextlib.suppress(OSError):  # nobody reads it: the code tells how it ended all the same
        sys.stdout.flush()
        sys.stderr.flush()
    # Not through interpreter shutdown: threads that a library left must not keep the stage alive.
    os._exit(code)
