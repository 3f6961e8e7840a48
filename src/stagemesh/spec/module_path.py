"""Paths of modules in a network, as plans write them: `transformer_blocks.*.attn.to_q`.

A path is names joined by dots, as `named_modules` gives them; the empty path is the network itself.
A `*` stands for every item of one list or dictionary of modules.
"""

from __future__ import annotations

import re
from typing import Final

EVERY: Final = "*"
"""Stands for every item of a list of modules."""
_PART: Final = re.compile(r"\*|[A-Za-z0-9_-]+", re.ASCII)


def is_path(text: str) -> bool:
    """Whether `text` can be the path of a module or of several; a list is named before its `*`."""
    return not text or (
        not text.startswith(EVERY) and all(_PART.fullmatch(part) for part in text.split("."))
    )


def is_below(path: str, pattern: str) -> bool:
    """Whether a path is one that `pattern` stands for, or lies inside of one."""
    wanted = pattern.split(".") if pattern else []
    got = path.split(".")
    return len(got) >= len(wanted) and all(
        want in (EVERY, have) for want, have in zip(wanted, got, strict=False)
    )


def block_of(pattern: str) -> str:
    """The part of a pattern up to its last `*`: the block that its attributes count from."""
    before, star, _ = pattern.rpartition(EVERY)
    return before + star


def joined(*parts: str) -> str:
    """Parts of a path with a dot between them; empty ones are left out."""
    return ".".join(part for part in parts if part)
