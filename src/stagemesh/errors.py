"""The error tree. Everything stagemesh raises on purpose is below `StagemeshError`.

StagemeshError
├── DiagnosticError       the user's input is wrong: carries all that was found, nothing was started
│   ├── StrategyLoadError     a strategy file cannot be read
│   ├── AxisTranslationError  the axes of one stage do not make a layout
│   └── StrategyApplyError    strategies do not fit the model, its stages or the devices
├── StartupError          a stage could not be brought up; everything already started was stopped
├── MeshError             the ranks of a stage did not come together
│   └── PeerError             another rank is gone, or did not answer in time
├── ConnectorError        a payload could not be carried for want of memory or of a service
├── PromptsError          of several prompts some failed: keeps the results of the others
├── RequestError          one request failed; others go on
│   ├── InvalidRequestError   the request itself cannot be served (empty, too long, bad parameter)
│   ├── StageFailedError      a stage reported a failure or its process died
│   ├── DeadlineError         the request's deadline passed
│   └── OverloadedError       too many requests run or wait: try again later
│       └── SessionRefusedError   no session, or no turn of one, is taken now
└── ClosedError           the object was used after `close`

Each has a stable `code`, as diagnostics have; the message is its first line, and what follows are
the last lines that a stage has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stagemesh.spec.diagnostic import Diagnostic


class StagemeshError(Exception):
    """Base of every error that stagemesh raises on purpose."""

    code: ClassVar[str] = "RT010"
    help: ClassVar[str | None] = None
    """What can be done about errors of this kind, as far as that is known."""


class DiagnosticError(StagemeshError):
    """The user's input is wrong; `diagnostics` holds all that was found, errors and warnings."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        """Keep `diagnostics` in the order they were found."""
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(_lines(self.diagnostics)))


def _lines(diagnostics: Sequence[Diagnostic]) -> Iterator[str]:
    """Each finding, and below it what to do about it."""
    for diagnostic in diagnostics:
        yield str(diagnostic)
        if diagnostic.help is not None:
            yield f"  help: {diagnostic.help}"


def _told(error: StagemeshError) -> str:
    """An error with its code, which diagnostics say themselves."""
    return str(error) if isinstance(error, DiagnosticError) else f"{error.code}: {error}"


class StrategyLoadError(DiagnosticError):
    """A strategy file cannot be read."""


class AxisTranslationError(DiagnosticError):
    """The axes of one stage do not make a layout."""


class StrategyApplyError(DiagnosticError):
    """Strategies do not fit the model, its stages or the devices."""


class StartupError(StagemeshError):
    """A stage could not be brought up; whatever had been started was stopped again."""

    code = "RT011"
    help = "`--debug` shows everything that the stages write"

    def __init__(self, message: str, *, stage: str | None = None) -> None:
        """`stage` is the name of the stage that failed, when one is to blame."""
        self.stage = stage
        super().__init__(message)


class MeshError(StagemeshError):
    """The ranks of a stage did not come together: none of them has a mesh."""

    code = "RT070"
    help = "the message names the rank and the axis; `--debug` shows what that rank has written"


class PeerError(MeshError):
    """Another rank of a group is gone, has closed the mesh, or did not answer in time."""

    code = "RT071"
    help = "look for the first rank that failed: the others only tell that they missed it"


class ParallelError(StagemeshError):
    """A plan of a network cannot be bound onto it."""

    code = "RT072"
    help = "correct the plan of the network, or the bindings that the strategy names"


class ActivityError(ParallelError):
    """A network that was bound does not do what its plan says."""

    code = "RT073"
    help = "the message names the module: correct what the plan says of it"


class ConnectorError(StagemeshError, ValueError):
    """A payload could not be carried: memory or a service is missing now. Others may pass."""

    code = "RT030"
    help = "free memory or descriptors, or start the service that the message names"


class RequestError(StagemeshError):
    """One request failed: where, by `stage` and `replica`; `retryable` if trying again can help."""

    def __init__(
        self,
        message: str,
        *,
        stage: str | None = None,
        replica: int | None = None,
        retryable: bool = False,
    ) -> None:
        """Keep where it failed beside the message."""
        self.stage = stage
        self.replica = replica
        self.retryable = retryable
        super().__init__(message)


class InvalidRequestError(RequestError):
    """The request itself cannot be served, whatever the state of the system."""

    code = "RT012"
    help = "change the request: shorten what is too long, or raise `max_model_len` of the stage"


class SessionModeError(InvalidRequestError):
    """A request where requests are turns of sessions, or a session where they take turns."""

    code = "RT062"
    help = "open a session where the pipeline is full duplex, and send requests where it is not"


class StageFailedError(RequestError):
    """A stage reported a failure, or the process that ran it is gone."""

    code = "RT013"
    help = "`--debug` shows everything that the stages write, tracebacks included"


class DeadlineError(RequestError):
    """The request's deadline passed before its last output."""

    code = "RT014"
    help = "give it more time with `--timeout` or `timeout_s`, or ask for less"


class OverloadedError(RequestError):
    """As many requests run or wait as may; `retry_after_s` says when one of them is likely done."""

    code = "RT016"
    help = "send it again later, or run more replicas of the first stage"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        """Trying again can always help."""
        self.retry_after_s = retry_after_s
        super().__init__(message, retryable=True)


class SessionRefusedError(OverloadedError):
    """Sessions hold all that may be held, or one of them has too much to compute already."""

    code = "RT060"
    help = "try again later, or on another connection, which may reach another frontend"

    def __init__(self, message: str, *, reason: str) -> None:
        """`reason` is `resource_exhausted` or `input_backpressure`."""
        self.reason = reason
        super().__init__(message, retry_after_s=1.0)


class PromptsError(StagemeshError):
    """Some of several prompts failed; what the others gave is kept."""

    code = "RT026"
    help = "`results` holds what the others gave, `failures` why each failed, by its place"

    def __init__(self, results: Sequence[Any], failures: Mapping[int, StagemeshError]) -> None:
        """`results` has one entry per prompt, in order: `None` where `failures` says why."""
        self.results = tuple(results)
        self.failures = dict(failures)
        lines = [f"{len(self.failures)} of {len(self.results)} prompts failed"]
        lines += [f"prompt {at}: {_told(why)}" for at, why in self.failures.items()]
        super().__init__("\n".join(lines))


class ClosedError(StagemeshError):
    """The object was used after it had been closed."""

    code = "RT015"
