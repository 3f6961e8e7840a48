"""Errors that carry diagnostics."""

from __future__ import annotations

from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic


def test_the_text_of_an_error_says_what_to_do() -> None:
    """Below each finding that has a remedy."""
    found = [
        Diagnostic(code="CF065", message="unknown field `a`", help="did you mean `b`?"),
        Diagnostic(code="CF010", message="unknown key `c`"),
    ]
    assert str(DiagnosticError(found)) == (
        "error[CF065]: unknown field `a`\n  help: did you mean `b`?\nerror[CF010]: unknown key `c`"
    )
