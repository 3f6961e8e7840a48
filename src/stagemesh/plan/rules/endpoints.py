"""Addresses at which connectors meet their services: ports in range, one service at each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from stagemesh.config.settings import ConnectorSettings
from stagemesh.config.tree import quoted
from stagemesh.plan.rules.context import RuleContext, Ruling
from stagemesh.spec.diagnostic import Diagnostic, Note
from stagemesh.spec.frozen import frozen

_ADDRESS: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^][\s:/]+)"
    r"(?::(?P<port>[0-9]{1,9}))?(?:/\S*)?"
)
"""An address or a URL; without a port it names a service that is found in another way."""
_LAST_PORT: Final = 65535


@frozen
class _Endpoint:
    """One address and who meets there."""

    connector: ConnectorSettings
    """The connector."""
    option: str
    """Its option."""
    text: str
    """The address as it was written."""

    @property
    def service(self) -> tuple[str, str]:
        """What answers there: connectors of one class share theirs."""
        return self.connector.connector, self.option

    @property
    def path(self) -> str:
        """Where it is written."""
        return f"connectors.{self.connector.name}.extra.{self.option}"


def endpoints(context: RuleContext) -> Ruling:
    """Check every address of every declared connector."""
    found: list[Diagnostic] = []
    taken: dict[tuple[str, int], _Endpoint] = {}
    for endpoint in _all(context):
        match = _ADDRESS.fullmatch(endpoint.text)
        if match is None or (match["port"] and not 1 <= int(match["port"]) <= _LAST_PORT):
            found.append(_no_address(endpoint))
        elif match["port"]:
            address = (match["host"].lower(), int(match["port"]))
            first = taken.setdefault(address, endpoint)
            if first.service != endpoint.service:
                found.append(_taken(first, endpoint))
    return Ruling(diagnostics=tuple(found))


def _all(context: RuleContext) -> Iterator[_Endpoint]:
    specs = {spec.name: spec for spec in context.catalog.connectors.values()}
    for connector in context.settings.connectors.values():
        for option, text in specs[connector.connector].endpoints(connector.options).items():
            yield _Endpoint(connector=connector, option=option, text=text)


def _no_address(endpoint: _Endpoint) -> Diagnostic:
    return Diagnostic(
        code="PL116",
        message=f"{quoted(endpoint.text)} is no address",
        origin=endpoint.connector.origin,
        notes=(Note(message=f"it is `{endpoint.path}`"),),
        help=f"write `host:port` or a URL, with a port from `1` to `{_LAST_PORT}`",
    )


def _taken(first: _Endpoint, second: _Endpoint) -> Diagnostic:
    return Diagnostic(
        code="PL117",
        message=f"two services have the address {quoted(second.text)}",
        origin=second.connector.origin,
        notes=tuple(
            Note(message=f"it is `{each.path}`", origin=each.connector.origin)
            for each in (first, second)
        ),
        help="give each its own port",
    )
