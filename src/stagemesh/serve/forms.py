"""What crosses the native HTTP endpoint: a request as JSON, outputs and the end as events.

Bytes of a buffer are base64, so that any payload of any pipeline has one JSON form. Decoding checks
types and names and nothing else; what a request means is checked where it is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from stagemesh.errors import (
    DiagnosticError,
    RequestError,
    StagemeshError,
)
from stagemesh.runtime.hints import RouteHints
from stagemesh.runtime.outputs import OmniOutput, StageProgress, StageReport
from stagemesh.runtime.running import Running
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.payload import Buffer, MetaValue, Payload

DEFAULT_TIMEOUT_S: Final = 600.0
"""How long a request may take that does not say."""


class _Form(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what is read: unknown names are refused."""


class BufferForm(_Form, frozen=True, kw_only=True):
    """One buffer of a payload."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class PayloadForm(_Form, frozen=True, kw_only=True):
    """A payload."""

    meta: dict[str, MetaValue] = {}
    buffers: tuple[BufferForm, ...] = ()


class RouteForm(_Form, frozen=True, kw_only=True):
    """Where a request would like to be served."""

    keys: dict[str, str] = {}
    cost: Annotated[int, Meta(ge=1)] = 1
    follows: str | None = None


class GenerateForm(_Form, frozen=True, kw_only=True):
    """The body of `POST /v1/generate`."""

    prompt: str | PayloadForm
    sampling_params: dict[str, dict[str, object]] = {}
    request_id: str | None = None
    route: RouteForm = RouteForm()
    timeout_s: float | None = DEFAULT_TIMEOUT_S
    stream: bool = True
    progress: bool = False


class TurnForm(_Form, frozen=True, kw_only=True, tag="turn"):
    """What a client says in a session: compute this, after what came before."""

    prompt: str | PayloadForm
    sampling_params: dict[str, dict[str, object]] = {}
    id: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    timeout_s: float | None = DEFAULT_TIMEOUT_S


class CancelForm(_Form, frozen=True, kw_only=True, tag="cancel"):
    """What a client says in a session: leave that turn."""

    id: str


class CloseForm(_Form, frozen=True, kw_only=True, tag="close"):
    """What a client says in a session: this was all."""


class ScaleForm(_Form, frozen=True, kw_only=True):
    """The body of `POST /scale`."""

    stage: str
    replicas: int


SaidForm: TypeAlias = TurnForm | CancelForm | CloseForm
"""Everything that a client says in a session."""
Json: TypeAlias = Mapping[str, object]
"""An object, ready to be written."""

Form = TypeVar("Form", bound=_Form)
_encoder: Final = msgspec.json.Encoder()
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_EXAMPLES: Final[Mapping[type[_Form], str]] = {
    GenerateForm: '{"prompt": "What is the capital of France?"}',
    ScaleForm: '{"stage": "talker", "replicas": 3}',
}


def read(body: bytes, form: type[Form]) -> Form:
    """Decode a body; raises `DiagnosticError` saying where it is not as it should be."""
    try:
        return msgspec.json.decode(body, type=form)
    except _UNREADABLE as error:
        raise _unreadable(error, _EXAMPLES[form]) from error


def read_said(message: str | bytes) -> SaidForm:
    """Decode what a client says in a session; raises `DiagnosticError` as `read` does."""
    try:
        return msgspec.json.decode(message, type=SaidForm)
    except _UNREADABLE as error:
        raise _unreadable(error, '{"type": "turn", "prompt": "Hello!"}') from error


def prompt_of(given: str | PayloadForm) -> str | Payload:
    """Return what a request begins with."""
    if isinstance(given, str):
        return given
    buffers = tuple(
        Buffer(name=one.name, dtype=one.dtype, shape=one.shape, data=memoryview(one.data))
        for one in given.buffers
    )
    return Payload(meta=given.meta, buffers=buffers)


def route_of(form: GenerateForm) -> RouteHints:
    """Return what the request says of its route."""
    return RouteHints(keys=form.route.keys, cost=form.route.cost, follows=form.route.follows)


def event(kind: str, data: Json) -> bytes:
    """Write one server-sent event (HTML Living Standard, 9.2); JSON has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encoder.encode(data))


def document(data: Json) -> bytes:
    """Write a whole answer."""
    return _encoder.encode(data)


def output_form(output: OmniOutput) -> Json:
    """One output of a final stage."""
    return {
        "stage": output.stage,
        "kind": output.kind,
        "final": output.final,
        "payload": _payload_form(output.payload),
    }


def progress_form(news: StageProgress) -> Json:
    """One step forward of a request."""
    return {
        "stage": news.stage,
        "replica": news.replica,
        "state": news.state.value,
        "units": news.units,
    }


def report_form(report: StageReport) -> Json:
    """What one stage did for a request."""
    return {
        "stage": report.stage,
        "replicas": report.replicas,
        "seconds": report.seconds,
        "first_output_s": report.first_output_s,
        "units": report.units,
    }


def end_form(running: Running) -> Json:
    """How a request ended well."""
    return {
        "report": [report_form(report) for report in running.report],
        "seconds": running.seconds,
        "first_output_s": running.first_output_s,
    }


def error_form(error: StagemeshError) -> Json:
    """An error, with all that was found where it is about the request itself."""
    form: dict[str, object] = {"code": error.code, "message": str(error), "help": error.help}
    if isinstance(error, RequestError):
        form |= {
            "stage": error.stage,
            "replica": error.replica,
            "retryable": error.retryable,
        }
    elif isinstance(error, DiagnosticError):
        first = error.diagnostics[0]
        form |= {"code": first.code, "message": first.message, "help": first.help}
        form["diagnostics"] = [
            {"code": found.code, "message": found.message, "help": found.help}
            for found in error.diagnostics
        ]
    return {"error": form}


def _payload_form(payload: Payload) -> Json:
    return {
        "meta": payload.meta,
        "buffers": [
            {"name": one.name, "dtype": one.dtype, "shape": one.shape, "data": one.data}
            for one in payload.buffers
        ],
    }


def _unreadable(error: Exception, example: str) -> DiagnosticError:
    told = f"the request cannot be read: {_lower(str(error))}"
    help_text = f"send JSON such as `{example}`"
    return DiagnosticError([Diagnostic(code="SV001", message=told, help=help_text)])


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
