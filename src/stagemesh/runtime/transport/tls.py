"""TLS on streams between hosts, where files are named for it.

It begins once both ends have proved the token, so that strangers reach no more than the handshake.
Both ends show a certificate of the same authority. There is nothing to negotiate: each end knows
from its own start whether streams are under TLS, and one that is alone in that finds no sense in
the other's bytes.
"""

from __future__ import annotations

import functools
import socket
import ssl

from stagemesh.config.launch import LaunchOptions
from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin


@frozen
class TlsFiles:
    """What an end shows and believes."""

    cert: str
    """File of its certificate, and of what links it to the authority."""
    key: str
    """File of the key of that."""
    ca: str
    """File of the authority's certificate."""

    @classmethod
    def of(cls, launch: LaunchOptions) -> TlsFiles | None:
        """The files that a start names, or `None` for streams without TLS."""
        cert, key, ca = launch.omni_tls_cert, launch.omni_tls_key, launch.omni_tls_ca
        if cert is None or key is None or ca is None:
            return None
        return cls(cert=cert, key=key, ca=ca)


def secured(sock: socket.socket, files: TlsFiles | None, *, is_acceptor: bool) -> socket.socket:
    """Return the socket as it goes on: under TLS when there are files, else as it is."""
    if files is None:
        return sock
    context = tls_context(files, is_acceptor=is_acceptor)
    return context.wrap_socket(sock, server_side=is_acceptor, do_handshake_on_connect=False)


def secured_feed(sock: socket.socket, launch: LaunchOptions, *, is_acceptor: bool) -> socket.socket:
    """Return a rank's feed as it goes on: under TLS where it leads to another host."""
    is_near = sock.family == socket.AF_UNIX
    return secured(sock, None if is_near else TlsFiles.of(launch), is_acceptor=is_acceptor)


@functools.cache
def tls_context(files: TlsFiles, *, is_acceptor: bool) -> ssl.SSLContext:
    """Read the files; raises `DiagnosticError` when they do not belong together."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_acceptor else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the authority is the cluster's own: its word is enough
    context.verify_mode = ssl.CERT_REQUIRED
    if is_acceptor:
        context.num_tickets = 0  # nobody comes back to a stream
    try:
        context.load_cert_chain(files.cert, files.key, password=_no_password)
        context.load_verify_locations(files.ca)
    except (OSError, ValueError) as error:  # which `ssl.SSLError` is
        why = error.reason if isinstance(error, ssl.SSLError) else error.args[-1]
        origin = Origin(layer=Layer.GLOBAL, source="--omni-tls-cert")
        message = f"TLS cannot be set up: {str(why).lower()}"
        help_text = f"looked at `{files.cert}`, `{files.key}` and `{files.ca}`"
        found = Diagnostic(code="RT023", message=message, origin=origin, help=help_text)
        raise DiagnosticError([found]) from error
    return context


def _no_password() -> str:
    raise ValueError("the key is under a password")
