"""What a server logs of requests, and how a line looks: text for people, JSON for programs.

A line about a request carries its name, and where it is about a stage the stage and the replica:
as fields of the record (`request_id`, `stage`, `replica`), whatever the format makes of them. A
line of one frontend of several carries its number as `frontend`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from stagemesh.errors import RequestError, StagemeshError
from stagemesh.runtime.running import Seat
from stagemesh.runtime.telemetry import Observer, Outcome

_FIELDS: Final = ("frontend", "request_id", "stage", "replica")
_log: Final = logging.getLogger("stagemesh.requests")


class RequestLog(Observer):
    """One line when a request begins or goes on to further stages, and one when it ends."""

    def begun(self, request: str, seats: Mapping[int, Seat]) -> None:
        """Say where it goes."""
        _log.info("begins at %s", _places(seats), extra={"request_id": request})

    def entered(self, request: str, seats: Mapping[int, Seat]) -> None:
        """Say where it goes now."""
        _log.info("goes on to %s", _places(seats), extra={"request_id": request})

    def refused(self, request: str, outcome: Outcome, error: StagemeshError) -> None:
        """Say why."""
        _log.info("is not taken: %s: %s", outcome.value, error, extra=_where(request, error))

    def ended(self, request: str, outcome: Outcome, error: StagemeshError | None) -> None:
        """Say how."""
        if error is None:
            _log.info("has %s", outcome.value, extra={"request_id": request})
        else:
            level = logging.WARNING if outcome is Outcome.FAILED else logging.INFO
            told = _where(request, error)
            _log.log(level, "ended: %s: %s", outcome.value, error, extra=told)


def _places(seats: Mapping[int, Seat]) -> str:
    return ", ".join(f"{seat.stage} {seat.replica}" for seat in seats.values())


def _where(request: str, error: StagemeshError) -> Mapping[str, object]:
    told: dict[str, object] = {"request_id": request}
    if isinstance(error, RequestError):
        told |= {"stage": error.stage, "replica": error.replica}
    return told


class JsonLines(logging.Formatter):
    """Every record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextLines(logging.Formatter):
    """Time, logger, what the line is about, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        at = datetime.fromtimestamp(record.created, UTC)
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        about = f" [{fields}]" if fields else ""
        line = f"{at:%H:%M:%S}.{at.microsecond // 1000:03} {record.name}{about}"
        line += f": {record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


FORMATS: Final[Mapping[str, type[logging.Formatter]]] = {"text": TextLines, "json": JsonLines}
"""What `--log-format` may be."""


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    """What a record is about."""
    given = vars(record)
    return {name: given[name] for name in _FIELDS if given.get(name) is not None}
