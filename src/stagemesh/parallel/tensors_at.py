"""One tensor of what goes into a module or comes out of it: by name of a parameter, or by index."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import nn

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""What a module is called with."""
Change: TypeAlias = Callable[[Any], Any]


def with_argument(
    module: nn.Module, given: tuple[tuple[Any, ...], Mapping[str, Any]], name: str, change: Change
) -> Arguments | None:
    """Return the arguments with one of them changed; `None` where it is not given."""
    args, kwargs = given
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs)
    if bound.arguments.get(name) is None:
        return None
    bound.arguments[name] = change(bound.arguments[name])
    return bound.args, bound.kwargs


def with_output(output: Any, index: int, change: Change) -> Any:  # noqa: ANN401  of any network
    """Return an output with one of its tensors changed; a single one is its own index 0.

    Raises `LookupError` where there is no such output.
    """
    if not isinstance(output, list | tuple):
        if index or not isinstance(output, torch.Tensor):
            raise LookupError(index)
        return change(output)
    if index >= len(output):
        raise LookupError(index)
    return type(output)(change(each) if at == index else each for at, each in enumerate(output))
