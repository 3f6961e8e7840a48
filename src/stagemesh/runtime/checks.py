"""What is wrong with a request, or with running a plan at all, before anything is done for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Final, cast

from stagemesh.plan.launch import is_by_ray
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.origin import Origin
from stagemesh.spec.payload import DTYPE_BYTES, Buffer, Payload

_SCALARS: Final = (str, int, float, bool, type(None))


def check_prompt(prompt: object) -> list[Diagnostic]:
    """Say what is wrong with a prompt, whatever it is."""
    if isinstance(prompt, str) and not prompt.strip():
        return [
            Diagnostic(code="RT004", message="the prompt is empty", help="give it a text to answer")
        ]
    if isinstance(prompt, str):
        return []
    return [
        Diagnostic(
            code="RT006",
            message=f"a prompt is a text or a `Payload`: {flaw}",
            help='wrap what is more than text: `Payload(meta={"text": "..."}, buffers=(...))`',
        )
        for flaw in payload_flaws(prompt)
    ]


def check_timeout(timeout_s: object, origin: Origin | None = None) -> list[Diagnostic]:
    """Say what is wrong with a deadline in seconds; `None` is no deadline."""
    if timeout_s is None:
        return []
    if isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and timeout_s > 0:
        return []  # which NaN is not
    message = f"the time limit must be above 0 seconds: `{timeout_s}`"
    return [Diagnostic(code="RT007", message=message, origin=origin)]


def check_queue_limit(limit: object) -> list[Diagnostic]:
    """Say what is wrong with a number of requests that may wait; `None` is any number."""
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if limit is None or (is_number and cast("int", limit) >= 0):
        return []
    message = f"`queue_limit` is a whole number of at least 0, or `None`: got `{limit!r:.40}`"
    return [Diagnostic(code="RT018", message=message)]


def check_executable(plan: Plan) -> list[Diagnostic]:
    """Say why nothing can execute a valid plan, one finding for each reason."""
    message = "the plan cannot be run: {}"
    found = [Diagnostic(code="RT003", message=message.format(why)) for why in plan.not_runnable]
    return found + _check_ray(plan)


def _check_ray(plan: Plan) -> list[Diagnostic]:
    """Say that Ray is missing where it is to start stages; a headless start asks it for nothing."""
    asked = [stage for stage in plan.stages if is_by_ray(plan.launch, stage)]
    if not asked or plan.launch.headless or importlib.util.find_spec("ray") is not None:
        return []
    names = ", ".join(f"`{stage.name}`" for stage in asked)
    return [
        Diagnostic(
            code="RT063",
            message=f"Ray is to start {names}, and it is not installed",
            help="pip install 'stagemesh[ray]'",
        )
    ]


def check_one_request(plan: Plan) -> list[Diagnostic]:
    """Say why a plan takes no request outside of sessions."""
    if plan.session.duplex is None:
        return []
    return [
        Diagnostic(
            code="RT062",
            message=f"requests of `{plan.pipeline}` are turns of sessions, and this is one request",
            help="serve it, and open a session at `/v1/session`, or in Python with"
            " `AsyncOmni.open_session()`",
        )
    ]


def check_limits(queue_limit: object, unread_bytes: object) -> list[Diagnostic]:
    """Say what is wrong with the limits of a system."""
    return check_queue_limit(queue_limit) + check_unread_bytes(unread_bytes)


def check_unread_bytes(limit: object, origin: Origin | None = None) -> list[Diagnostic]:
    """Say what is wrong with a number of bytes that may be unread."""
    is_number = isinstance(limit, int) and not isinstance(limit, bool)
    if is_number and cast("int", limit) >= 1:
        return []
    message = f"unread bytes are a whole number of at least 1: got `{limit!r:.40}`"
    return [Diagnostic(code="RT019", message=message, origin=origin)]


def check_runnable(plan: Plan) -> list[Diagnostic]:
    """Say why a valid plan cannot be run and asked here."""
    found = check_executable(plan)
    if plan.launch.headless:
        found.append(
            Diagnostic(
                code="RT024",
                message="a `--headless` start answers nobody itself",
                help="ask the start that runs the orchestrator, at `--omni-master-address`",
            )
        )
    if plan.launch.api_server_count > 1:
        found.append(
            Diagnostic(
                code="RT061",
                message=f"`{plan.launch.api_server_count}` frontends are processes of a server",
                help="start them with `stagemesh serve`, or write `--api-server-count 1` here",
            )
        )
    return found


def payload_flaws(payload: object) -> Iterator[str]:
    """Say where something is not of the shape that `Payload` promises."""
    if not isinstance(payload, Payload):
        yield f"got `{type(payload).__name__}`"
        return
    if isinstance(payload.meta, Mapping):
        for name, value in payload.meta.items():
            flat = value if isinstance(value, list) else [value]
            if not isinstance(name, str):
                yield f"`meta` has the name `{name!r}`"
            elif not all(isinstance(item, _SCALARS) for item in flat):
                yield f"`meta[{name!r}]` is neither a JSON scalar nor a flat list of them"
    else:
        yield f"`meta` is `{type(payload.meta).__name__}`"
    if isinstance(payload.buffers, tuple):
        for buffer in payload.buffers:
            yield from _buffer_flaws(buffer)
    else:
        yield f"`buffers` is `{type(payload.buffers).__name__}`, not a tuple"


def _buffer_flaws(buffer: object) -> Iterator[str]:
    if not isinstance(buffer, Buffer):
        yield f"a buffer is `{type(buffer).__name__}`"
        return
    if not isinstance(buffer.name, str):
        yield f"a buffer has the name `{buffer.name!r}`"
    if buffer.dtype not in tuple(DTYPE_BYTES):
        yield f"buffer `{buffer.name}` has the dtype `{buffer.dtype}`"
    if not _is_shape(buffer.shape):
        yield f"buffer `{buffer.name}` has the shape `{buffer.shape!r}`, not a tuple of sizes"
    if not isinstance(buffer.data, memoryview):
        yield f"buffer `{buffer.name}` holds `{type(buffer.data).__name__}`, not a `memoryview`"


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(isinstance(size, int) for size in shape)
