"""Methods of one object that do something else for a while, or from now on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from torch import nn

Method: TypeAlias = Callable[..., object]


def method_of(owner: nn.Module, name: str) -> Method:
    """Return a method by its name; `LookupError` where there is none."""
    try:
        found: Method = getattr(owner, name)
    except AttributeError:
        raise LookupError(name) from None
    return found


def replace_method(owner: nn.Module, name: str, method: Method) -> None:
    """Let an object, and no other of its class, do something else; the class stays as it is."""
    owner.__dict__[name] = method


@contextmanager
def replaced(owner: nn.Module, **methods: Method) -> Iterator[None]:
    """Let an object do something else inside the block, and afterwards what it did before."""
    before = {name: owner.__dict__[name] for name in methods if name in owner.__dict__}
    owner.__dict__.update(methods)
    try:
        yield
    finally:
        for name in methods:
            del owner.__dict__[name]
        owner.__dict__.update(before)
