"""The engine `mirror`: gives every input back, for any kind of stage."""

from __future__ import annotations

from stagemesh.spec.engine import EngineSpec
from stagemesh.spec.pipeline import ExecutionType

ENGINE = EngineSpec(
    name="mirror",
    summary="an engine of a third party",
    runs=frozenset(ExecutionType),
    executes=frozenset({"beam"}),
    factory="lantern.mirror_engine:MirrorEngine",
)
