"""Secrets: the token that all starts of one model share, and the key that users of a server bear.

Where other hosts could connect without one, listening is refused. A secret comes from a file or
from the environment, and goes nowhere: no plan, message, log or `repr` holds it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from stagemesh.config.environment import API_KEY, TOKEN
from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic, Severity
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin

MIN_CHARACTERS: Final = 16
"""Shortest token; what is shorter can be tried out."""
_MAX_BYTES: Final = 4096
_PERMISSION: Final = "--insecure-no-token"
_HELP: Final = "`python -c 'import secrets; print(secrets.token_hex())'` makes a good one"


@frozen
class SecretPlaces:
    """Where a secret may come from."""

    flag: str
    """The flag that names a file."""
    variable: str
    """The environment variable."""
    remedy: str
    """What to do with them, as a message says it."""


STARTS: Final = SecretPlaces(
    flag="--omni-token-file", variable=TOKEN, remedy="give every start the same"
)
"""The token that all starts of one model share."""
USERS: Final = SecretPlaces(
    flag="--api-key-file", variable=API_KEY, remedy="give the server a key with"
)
"""The key that users of a server bear."""


@frozen
class Secret:
    """A shared token, or none."""

    token: bytes = field(default=b"", repr=False)
    """The bytes; empty for none."""

    @property
    def is_known(self) -> bool:
        """Whether there is one."""
        return bool(self.token)


def read_secret(launch: LaunchOptions, environ: Mapping[str, str] = os.environ) -> Secret:
    """Return the token of the file that was named, else of the environment, else none.

    Raises `DiagnosticError` when the file cannot be read or others may, or the token is too short.
    """
    return _read(launch.omni_token_file, STARTS, environ)


def read_api_key(file: str | None, environ: Mapping[str, str] = os.environ) -> Secret:
    """Return what users of a server bear; errors as of `read_secret`."""
    return _read(file, USERS, environ)


def _read(file: str | None, places: SecretPlaces, environ: Mapping[str, str]) -> Secret:
    if file is not None:
        source, text = places.flag, _file_text(Path(file))
    elif places.variable in environ:
        source, text = f"environment variable {places.variable}", environ[places.variable]
    else:
        return Secret()
    token = text.strip().encode()
    if len(token) < MIN_CHARACTERS:
        message = f"the token has `{len(token)}` characters, and needs `{MIN_CHARACTERS}`"
        raise _refusal("RT021", message, source, _HELP)
    return Secret(token=token)


def check_bind(
    address: str, secret: Secret, *, is_insecure: bool, places: SecretPlaces = STARTS
) -> tuple[Diagnostic, ...]:
    """Say why nobody may listen at `address`: the world reaches it, and there is no token."""
    if secret.is_known or is_insecure or _is_loopback(address):
        return ()
    return (
        Diagnostic(
            code="RT022",
            message=f"`{address}` can be reached by other hosts, and there is no token",
            help=f"{places.remedy} `{places.flag}` or `{places.variable}`; where the network itself"
            " is safe, say `--insecure-no-token`",
        ),
    )


def idle_permission(
    launch: LaunchOptions,
    address: str | None = None,
    key: Secret | None = None,
    *,
    source: str = _PERMISSION,
) -> tuple[Diagnostic, ...]:
    """Say that the permission to go without a secret is none here: nobody could use it.

    `address` is where users are listened to, if they are, and `key` what they must bear; `source`
    is where the permission was given.
    """
    is_open = address is not None and not (key or Secret()).is_known and not _is_loopback(address)
    if not launch.insecure_no_token or launch.stage_id is not None or is_open:
        return ()
    return (
        Diagnostic(
            code="RT025",
            severity=Severity.WARNING,
            message=f"`{source}` has no effect: nobody is let in without a secret here",
            origin=Origin(layer=Layer.GLOBAL, source=source),
            help="it is for starts with `--stage-id`, and for servers at a `--host` that other"
            " hosts reach; leave it out",
        ),
    )


def _is_loopback(address: str) -> bool:
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    numbers = [str(entry[4][0]).partition("%")[0] for entry in found]
    return all(ipaddress.ip_address(number).is_loopback for number in numbers)


def _file_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise _refusal("RT020", f"the token cannot be read: {why}", str(path)) from error
    if not stat.S_ISREG(mode) or len(data) > _MAX_BYTES:
        raise _refusal("RT020", "the token's file is none that holds a token", str(path))
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        message = f"others than its owner may use the token's file, mode `{stat.S_IMODE(mode):o}`"
        raise _refusal("RT020", message, str(path), f"`chmod 600 {path}`")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _refusal("RT020", "the token's file is no text", str(path)) from error


def _refusal(code: str, message: str, source: str, help_text: str | None = None) -> DiagnosticError:
    origin = Origin(layer=Layer.GLOBAL, source=source)
    return DiagnosticError([Diagnostic(code=code, message=message, origin=origin, help=help_text)])
