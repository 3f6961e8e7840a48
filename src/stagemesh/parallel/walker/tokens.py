"""Tensors of tokens that every rank takes its part of, and outputs that are whole again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from stagemesh.errors import ActivityError
from stagemesh.parallel.sequence.cuts import starts
from stagemesh.parallel.tensors_at import with_argument, with_output
from stagemesh.parallel.walker.bound import Bound
from stagemesh.spec.model_plan import Gather, Split


def bind_splits(bound: Bound, path: str, module: nn.Module, pattern: str) -> None:
    """Cut what goes into a module, or comes out of it, as the plan says of its path."""
    for split in bound.plan.splits:
        if split.module != pattern:
            continue
        cut = functools.partial(_cut, bound, split, path)
        if not split.optional:
            key = _key(split, path)
            bound.activity.owe(key, f"the run never came by `{split.value}` of `{path}`")
        if isinstance(split.value, int):
            module.register_forward_hook(_on_output(bound, split, path, cut))
        else:
            module.register_forward_pre_hook(_on_input(bound, split, path, cut), with_kwargs=True)


def bind_gathers(bound: Bound, path: str, module: nn.Module, pattern: str) -> None:
    """Put together again what comes out of a module."""
    for gather in bound.plan.gathers:
        if gather.module == pattern:
            whole = functools.partial(_whole, bound, gather, path)
            key = _key(gather, path)
            bound.activity.owe(key, f"the run never came by output `{gather.value}` of `{path}`")
            module.register_forward_hook(_on_output(bound, gather, path, whole))


def _key(entry: Split | Gather, path: str) -> str:
    return f"{type(entry).__name__} {entry.value} {path}"


def _on_input(
    bound: Bound, split: Split, path: str, cut: Callable[[Any], Any]
) -> Callable[..., object]:
    def change(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        found = with_argument(module, (args, kwargs), str(split.value), cut)
        if found is None and not split.optional:
            raise ActivityError(f"`{path or bound.plan.name}` is given no `{split.value}` to cut")
        return found

    return change


def _on_output(
    bound: Bound, entry: Split | Gather, path: str, change: Callable[[Any], Any]
) -> Callable[..., object]:
    def changed(_module: nn.Module, _args: object, output: object) -> object:
        try:
            return with_output(output, int(entry.value), change)
        except LookupError:
            message = f"`{path or bound.plan.name}` has no output `{entry.value}`"
            raise ActivityError(message) from None

    return changed


def _cut(bound: Bound, split: Split, path: str, value: object) -> object:
    """Take the own part of each stream; lists and tuples are cut one by one."""
    if isinstance(value, list | tuple):
        return type(value)(_cut(bound, split, path, each) for each in value)
    what = f"`{split.value}` of `{path or bound.plan.name}`"
    if not isinstance(value, torch.Tensor):
        raise ActivityError(f"{what} is no tensor to cut, but a `{type(value).__name__}`")
    if split.rank is not None and value.ndim != split.rank and split.optional:
        return value
    bound.activity.done(_key(split, path))
    if split.dim >= value.ndim or (split.rank is not None and value.ndim != split.rank):
        raise ActivityError(f"{what} has `{value.ndim}` dimensions, and `{split.dim}` is to be cut")
    total = value.shape[split.dim]
    if total == 1:
        return value
    _learn(bound, split, what, total)
    parts, begin = [], 0
    for stream in split.streams:
        lengths = bound.parts(stream)
        place = bound.groups.place
        parts.append(value.narrow(split.dim, begin + starts(lengths)[place], lengths[place]))
        begin += bound.lengths[stream]
    return torch.cat(parts, split.dim) if len(parts) > 1 else parts[0].contiguous()


def _learn(bound: Bound, split: Split, what: str, total: int) -> None:
    """Remember the length of a stream that is met for the first time; others must be as before."""
    new = [stream for stream in split.streams if stream not in bound.lengths]
    known = sum(bound.lengths.get(stream, 0) for stream in split.streams)
    if len(new) == 1 and total >= known:
        bound.lengths[new[0]] = total - known
    elif new or total != known:
        streams = " and ".join(f"`{each}`" for each in split.streams)
        told = f"`{known}`" if not new else "any known number of"
        raise ActivityError(f"{what} has `{total}` tokens, where {streams} have {told}")


def _whole(bound: Bound, gather: Gather, path: str, value: torch.Tensor) -> torch.Tensor:
    places = bound.places(gather.streams)
    own = places[bound.groups.place]
    if gather.dim >= value.ndim or value.shape[gather.dim] != own:
        what = f"output `{gather.value}` of `{path or bound.plan.name}`"
        shape = tuple(value.shape)
        raise ActivityError(f"{what} does not have `{own}` tokens along `{gather.dim}`: `{shape}`")
    bound.activity.done(_key(gather, path))
    for over, traffic in bound.groups.gather_traffic(value, gather.dim, places):
        bound.activity.expect(over, traffic)
    everything = bound.groups.gather(value, gather.dim, places)
    if len(gather.streams) == 1:
        return everything
    return torch.cat(list(_by_stream(bound, everything, gather.dim, gather.streams)), gather.dim)


def _by_stream(
    bound: Bound, everything: torch.Tensor, dim: int, streams: Sequence[str]
) -> Iterator[torch.Tensor]:
    """Put what lies place by place in the order of streams."""
    lengths = [bound.parts(stream) for stream in streams]
    sizes = [size for place in zip(*lengths, strict=True) for size in place]
    pieces = everything.split(sizes, dim)
    for number in range(len(streams)):
        yield from pieces[number :: len(streams)]
