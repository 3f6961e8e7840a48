"""The work of `stagemesh explain`: finds out what was asked for; each kind of answer is a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final, cast

from stagemesh.cli._screen import columns, show_json, show_text
from stagemesh.config.plain import plain_fields
from stagemesh.plan.pages import has_page, page_of, page_text
from stagemesh.spec.reference import resolve

_AXIS: Final = "axis"
_HERE: Final = "stagemesh.cli"


def run(namespace: argparse.Namespace) -> int:
    """Explain one thing; what is unknown is told with the nearest that is known."""
    what: str = namespace.what
    if what == _AXIS:
        return _answer("_explain_words:axis", namespace)
    if namespace.model is not None:
        return _answer("_explain_value:value", namespace)
    if not has_page(what.upper()):
        return _answer("_explain_words:field", namespace)
    page = page_of(what.upper())
    if namespace.json:
        show_json({"code": plain_fields(page)})
    else:
        sys.stdout.write(page_text(page, columns(sys.stdout)))
        show_text(f"\nnext: `stagemesh explain {page.code} --json` gives the same as data")
    return 0


def _answer(name: str, namespace: argparse.Namespace) -> int:
    """Load only what answers: a page needs none of what a plan needs."""
    answer = cast("Callable[[argparse.Namespace], int]", resolve(f"{_HERE}.{name}"))
    return answer(namespace)
