"""Which launch options need or exclude which others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Final, TypeAlias

from stagemesh.config.launch import NO_STAGE, LaunchOptions
from stagemesh.config.settings import Sourced
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET

Given: TypeAlias = Mapping[str, Sourced[object]]
"""Launch options by name, as far as they were given; `UNSET` is one that was refused."""

_DEFAULTS: Final = {item.name: item.default for item in fields(LaunchOptions)}
_MASTER: Final = ("omni_master_address", "omni_master_port")
_TLS: Final = ("omni_tls_cert", "omni_tls_key", "omni_tls_ca")


@frozen
class _Needs:
    """An option that means nothing without others."""

    option: str
    others: tuple[str, ...]
    help: str


@frozen
class _Excludes:
    """Two options that contradict each other."""

    option: str
    other: str
    help: str
    at_default: bool = False
    """Whether the other one contradicts at its default, too."""


_NEEDS: Final = (
    _Needs(
        option="headless",
        others=("stage_id", *_MASTER),
        help="a headless start runs one stage and registers it with the orchestrator",
    ),
    _Needs(
        option="stage_id",
        others=_MASTER,
        help="every start of the model names where the one with the orchestrator listens",
    ),
    _Needs(
        option="omni_replica_address",
        others=("headless",),
        help="it is the address of a headless start; leave it out for any other",
    ),
    _Needs(
        option="omni_token_file",
        others=("omni_master_address",),
        help="the token is for other starts; this one runs everything itself",
    ),
    _Needs(
        option="omni_heartbeat_timeout",
        others=("omni_master_address",),
        help="it watches other starts; this one runs everything itself",
    ),
    *(
        _Needs(
            option=option,
            others=("omni_master_address", *(name for name in _TLS if name != option)),
            help="each start shows a certificate, and believes those of one authority",
        )
        for option in _TLS
    ),
    _Needs(
        option="omni_dp_size_local",
        others=("stage_id",),
        help="it counts the replicas of one stage; without it the deploy file and flags do",
    ),
    _Needs(
        option="ray_address",
        others=("worker_backend",),
        help="write `--worker-backend ray` as well, or leave the address out",
    ),
)

_ONE_PLACE: Final = "several API servers share the stages of one host; leave one of them out"
_EXCLUDES: Final = (
    _Excludes(
        option="headless",
        other="api_server_count",
        help="a headless start has no API server; leave one of them out",
        at_default=True,
    ),
    _Excludes(
        option="stage_id",
        other="worker_backend",
        help="Ray starts the processes on other hosts itself; leave one of them out",
    ),
    _Excludes(
        option="insecure_no_token",
        other="omni_token_file",
        help="with a token nobody else is let in; leave one of them out",
    ),
    *(
        _Excludes(option="api_server_count", other=other, help=_ONE_PLACE)
        for other in (
            "stage_id",
            "omni_master_address",
            "omni_replica_address",
            "omni_dp_size_local",
            "worker_backend",
        )
    ),
)


def launch_findings(given: Given) -> Iterator[Diagnostic]:
    """Say everything that is wrong with the launch options together."""
    refused = frozenset(name for name, said in given.items() if said.value is UNSET)
    given = {name: said for name, said in given.items() if name not in refused}
    on = {name: said for name, said in given.items() if said.value != _DEFAULTS[name]}
    yield from _missing(on, refused)
    for rule in _EXCLUDES:
        other = (given if rule.at_default else on).get(rule.other)
        if rule.option in on and other is not None:
            yield _contradiction(on[rule.option], other, rule.help)
    if "headless" in on and "stage_id" in on and on["stage_id"].value == NO_STAGE:
        help_text = "name the stage that it runs, or leave `--headless` out"
        yield _contradiction(on["headless"], on["stage_id"], help_text)


def flag_name(field: str) -> str:
    """Return the flag that follows from the name of a field."""
    return f"--{field.replace('_', '-')}"


def _missing(on: Given, refused: Collection[str]) -> Iterator[Diagnostic]:
    told = set(refused)  # when they were read
    for rule in _NEEDS:
        missing = [name for name in rule.others if name not in on and name not in told]
        if rule.option in on and missing:
            told.update(missing)
            *most, last = (f"`{flag_name(name)}`" for name in missing)
            listed = f"{', '.join(most)} and {last}" if most else last
            said = on[rule.option]
            yield Diagnostic(
                code="CF080",
                message=f"`{said.origin.source}` needs {listed}",
                origin=said.origin,
                help=rule.help,
            )


def _contradiction(said: Sourced[object], other: Sourced[object], help_text: str) -> Diagnostic:
    return Diagnostic(
        code="CF081",
        message=f"`{said.origin.source}` and `{other.origin.source}` exclude each other",
        origin=said.origin,
        notes=(Note(message="the other one is given here", origin=other.origin),),
        help=help_text,
    )
