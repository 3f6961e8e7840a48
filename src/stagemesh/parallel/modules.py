"""Modules of a network by the paths of a plan, and the sizes that their attributes hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import nn

from stagemesh.spec.module_path import EVERY, block_of

Found: TypeAlias = tuple[str, nn.Module]
"""A module and its path."""


def matching(model: nn.Module, pattern: str) -> tuple[Found, ...]:
    """Return the modules that a path of a plan stands for, each with its own path."""
    found: list[Found] = [("", model)]
    for part in pattern.split(".") if pattern else ():
        found = [each for path, module in found for each in _step(path, module, part)]
    return tuple(found)


def _step(path: str, module: nn.Module, part: str) -> Iterator[Found]:
    if part == EVERY and not isinstance(module, nn.ModuleList | nn.ModuleDict):
        return
    for name, child in module.named_children():
        if part in (EVERY, name):
            yield f"{path}.{name}" if path else name, child


def block_path(pattern: str, path: str) -> str:
    """The block that attributes are found from, for one of the modules that `pattern` names."""
    parts = block_of(pattern)
    return ".".join(path.split(".")[: parts.count(".") + 1]) if parts else ""


def attribute(model: nn.Module, block: str, name: str) -> object:
    """Return what an attribute holds, by its path from a block; `LookupError` if there is none."""
    found: object = model.get_submodule(block)
    for part in name.split("."):
        children = dict(found.named_children()) if isinstance(found, nn.Module) else {}
        try:
            found = children[part] if part in children else getattr(found, part)
        except AttributeError:
            raise LookupError(name) from None
    return found


def count(model: nn.Module, block: str, name: str) -> int:
    """Return the whole number that an attribute holds; `LookupError` if it holds none."""
    found = attribute(model, block, name)
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        return found
    raise LookupError(name)


def sizes(model: nn.Module, block: str, blocks: Sequence[str | int], total: int) -> list[int]:
    """Return the sizes of what lies side by side in a packed dimension of `total`.

    Raises `LookupError` where an attribute holds no size, `ValueError` where they do not add up.
    """
    found: list[int] = []
    for each in blocks:
        held = attribute(model, block, each) if isinstance(each, str) else each
        listed = held if isinstance(held, list | tuple) else (held,)
        if not all(isinstance(size, int) for size in listed):
            raise LookupError(str(each))
        found += listed
    if all(isinstance(each, int) for each in blocks) and total % sum(found) == 0:
        found = [total // sum(found) * share for share in found]
    if sum(found) != total:
        message = " + ".join(map(str, found))
        raise ValueError(message)
    return found


def weight_of(module: nn.Module, name: str = "weight") -> torch.Tensor | None:
    """Return a parameter of a module itself, if it has it."""
    return dict(module.named_parameters(recurse=False)).get(name)
