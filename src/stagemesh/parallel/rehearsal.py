"""A run of a network without numbers, as one rank would run it under a plan.

On the meta device nothing is computed and every shape is. The weights get the shapes that a rank
holds, tokens are cut and put together where the plan says, and each call of attention is looked at.
A rule that is missing or wrong shows as shapes that do not fit: whoever is at fault is named before
a weight is read. What the ranks would exchange does not happen here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree

from stagemesh.parallel.attention_calls import TOKENS, Attention, Heads, follow
from stagemesh.parallel.bind_check import bind_findings, told
from stagemesh.parallel.modules import matching
from stagemesh.parallel.tensors_at import with_argument, with_output
from stagemesh.parallel.width import cut_width
from stagemesh.spec.cost import even
from stagemesh.spec.diagnostic import Diagnostic
from stagemesh.spec.frozen import frozen
from stagemesh.spec.model_plan import AttentionSite, Gather, ModelPlan, SiteRole, Split
from stagemesh.spec.module_path import is_below

_ROLE_HELP: Final = "correct its role or its streams"


@frozen
class Example:
    """A network and one input for it, both on the meta device."""

    network: Callable[[], nn.Module]
    """Makes the network anew."""
    inputs: Mapping[str, object]
    """Arguments of its `forward`."""
    lengths: Mapping[str, int]
    """How many tokens each stream has, those that stay whole included. A length that is unlike
    every other size shows tensors that nobody cuts."""


@frozen
class Ranks:
    """How many ranks are rehearsed."""

    tp: int = 1
    """Ranks that cut the width."""
    sp: int = 1
    """Ranks that cut tokens."""


class _RefusedError(Exception):
    """The plan does not hold here; what and why is in its arguments."""


def rehearse(plan: ModelPlan, example: Example, ranks: Ranks) -> tuple[Diagnostic, ...]:
    """Run the network of an example as the first of `ranks` would; say what does not fit."""
    network = example.network()
    found = bind_findings(plan, network, ranks.tp)
    if found:
        return found
    whole = Heads()
    path = follow(network)
    with torch.no_grad():
        with Attention(lambda query, key, _mask: whole.note(path[-1], query, key)):
            wanted = _shapes(network(**example.inputs))
        if ranks.tp > 1:
            cut_width(plan, network, ranks.tp)
        watch = _Watch(
            plan=plan, network=network, example=example, ranks=ranks, path=path, whole=whole
        )
        watch.bind()
        try:
            with Attention(watch.attend):
                got = _shapes(network(**example.inputs))
        except _RefusedError as refused:
            return told(plan, [refused.args[0]])
        except Exception as error:  # noqa: BLE001  the network is foreign: whatever it raises is told
            return told(plan, [watch.failure(error)])
    return told(plan, watch.after(wanted, got))


def _shapes(output: object) -> list[torch.Size]:
    return [each.shape for each in _pytree.tree_leaves(output) if isinstance(each, torch.Tensor)]


@dataclass(eq=False, slots=True, kw_only=True)
class _Watch:
    """One run: where it is, what was cut so far, and which parts of the plan it came by."""

    plan: ModelPlan
    network: nn.Module
    example: Example
    ranks: Ranks
    path: list[str]
    whole: Heads
    met: set[int] = field(default_factory=set)
    calls: dict[str, int] = field(default_factory=dict)

    # --- lengths -----------------------------------------------------------------------------

    def local(self, stream: str) -> int:
        """Tokens of a stream that this rank has."""
        whole = self.example.lengths[stream]
        return even(whole, self.ranks.sp)[0] if stream in self.plan.streams else whole

    def told_length(self, streams: tuple[str, ...], *, cut: bool) -> int:
        """Tokens of some streams together, after they are cut or before."""
        lengths = self.example.lengths
        return sum(self.local(each) if cut else lengths[each] for each in streams)

    # --- hooks -------------------------------------------------------------------------------

    def bind(self) -> None:
        """Watch every module, and cut and gather where the plan says."""
        for site in self.plan.sites:
            for path, module in matching(self.network, site.module):
                module.register_forward_pre_hook(self._counting(path))
        for split in self.plan.splits:
            for path, module in matching(self.network, split.module):
                if isinstance(split.value, int):
                    module.register_forward_hook(self._cutting_output(split, path))
                else:
                    module.register_forward_pre_hook(
                        self._cutting_input(split, path), with_kwargs=True
                    )
        for blocks in self.plan.blocks:
            for path, module in matching(self.network, f"{blocks}.*"):
                module.register_forward_pre_hook(self._looking(path), with_kwargs=True)
        for gather in self.plan.gathers:
            for path, module in matching(self.network, gather.module):
                module.register_forward_hook(self._gathering(gather, path))

    def _counting(self, path: str) -> Callable[..., None]:
        def count_anew(_module: nn.Module, _args: object) -> None:
            self.calls[path] = 0

        return count_anew

    def _cutting_input(self, split: Split, path: str) -> Callable[..., object]:
        change = functools.partial(self._cut, split, path)

        def cut(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            found = with_argument(module, (args, kwargs), str(split.value), change)
            if found is None and not split.optional:
                raise _RefusedError(self._missing(split, path))
            return found

        return cut

    def _cutting_output(self, split: Split, path: str) -> Callable[..., object]:
        def cut(_module: nn.Module, _args: object, output: object) -> object:
            change = functools.partial(self._cut, split, path)
            return self._replaced(output, (int(split.value), path), change)

        return cut

    def _gathering(self, gather: Gather, path: str) -> Callable[..., object]:
        def whole(_module: nn.Module, _args: object, output: object) -> object:
            change = functools.partial(self._gather, gather, path)
            return self._replaced(output, (gather.value, path), change)

        return whole

    def _looking(self, path: str) -> Callable[..., None]:
        def look(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            given = inspect.signature(module.forward).bind_partial(*args, **kwargs)
            for name, value in given.arguments.items():
                for each in _pytree.tree_leaves(value):
                    if isinstance(each, torch.Tensor):
                        self._look(f"`{name}` of `{path}`", each)

        return look

    # --- what happens to tensors -------------------------------------------------------------

    def _cut(self, split: Split, path: str, value: object) -> object:
        if not isinstance(value, torch.Tensor):
            if not isinstance(value, list | tuple):
                raise _RefusedError(self._missing(split, path))
            return type(value)(self._cut(split, path, each) for each in value)
        what = f"`{split.value}` of `{path or self.plan.name}`"
        if split.rank is not None and value.ndim != split.rank:
            if split.optional:
                return value
            raise _RefusedError(self._misshapen(what, split.rank, value))
        wanted = self.told_length(split.streams, cut=False)
        size = value.shape[split.dim] if split.dim < value.ndim else None
        self.met.add(id(split))
        if size == 1:
            return value
        if size != wanted:
            raise _RefusedError(self._unlike(what, split, (wanted, value)))
        return _resized(value, split.dim, self.told_length(split.streams, cut=True))

    def _gather(self, gather: Gather, path: str, value: object) -> object:
        what = f"output `{gather.value}` of `{path or self.plan.name}`"
        assert isinstance(value, torch.Tensor)
        if gather.rank is not None and value.ndim != gather.rank:
            raise _RefusedError(self._misshapen(what, gather.rank, value))
        wanted = self.told_length(gather.streams, cut=True)
        if gather.dim >= value.ndim or value.shape[gather.dim] != wanted:
            raise _RefusedError(self._unlike(what, gather, (wanted, value)))
        self.met.add(id(gather))
        return _resized(value, gather.dim, self.told_length(gather.streams, cut=False))

    def _replaced(
        self, output: object, at: tuple[int, str], change: Callable[[object], object]
    ) -> object:
        index, path = at
        try:
            return with_output(output, index, change)
        except LookupError:
            message = f"`{path or self.plan.name}` has no output `{index}`"
            told = f"it puts out a `{type(output).__name__}`"
            raise _RefusedError(("MD054", message, told)) from None

    def _look(self, what: str, value: torch.Tensor) -> None:
        """A tensor that enters a block has no stream that is cut whole."""
        for stream in self.plan.streams:
            length = self.example.lengths[stream]
            if self.ranks.sp > 1 and length in value.shape:
                message = f"{what} holds all `{length}` tokens of `{stream}`, which is cut"
                help_text = f"add a split along `{stream}` for it: `{tuple(value.shape)}`"
                raise _RefusedError(("MD056", message, help_text))

    # --- attention ---------------------------------------------------------------------------

    def attend(self, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Compare one call of attention with the site that it belongs to."""
        path = self.path[-1]
        site = next((each for each in self.plan.sites if _is_at(each, path)), None)
        what = f"attention in `{path}`"
        if site is None:
            message = f"{what} is no site of the plan of `{self.plan.name}`"
            raise _RefusedError(("MD055", message, "name it in `sites`, with its role"))
        self.calls[path] += 1
        if self.calls[path] > site.calls:
            message = f"{what} is called more than `{site.calls}` times"
            raise _RefusedError(("MD055", message, f"write `calls={self.calls[path]}`"))
        if mask is not None and not site.masked and site.role is not SiteRole.LOCAL:
            message = f"{what} has a mask, and its site is not `masked`"
            raise _RefusedError(("MD055", message, "write `masked=True`, and split the mask"))
        for name, tensor, wanted in (
            ("queries", query, self._queries(site)),
            ("keys", key, self._keys(site)),
        ):
            if wanted is not None and tensor.shape[TOKENS] != wanted:
                got = tensor.shape[TOKENS]
                message = f"{what} has `{got}` {name}, and `{site.role.value}` means `{wanted}`"
                raise _RefusedError(("MD055", message, _ROLE_HELP))
        if site.role is SiteRole.LOCAL and query.shape[TOKENS] in self._cut_lengths():
            message = f"{what} has a part of the tokens, and its site is `local`"
            raise _RefusedError(("MD055", message, _ROLE_HELP))
        reason = self.whole.misfit(path, query, key, self.ranks.tp)
        if reason is not None:
            message = f"{what} has heads that are not those of the network"
            raise _RefusedError(("MD055", message, reason))

    def _queries(self, site: AttentionSite) -> int | None:
        if site.role is SiteRole.LOCAL:
            return None
        return self.told_length(site.streams, cut=True)

    def _keys(self, site: AttentionSite) -> int | None:
        if site.role is SiteRole.CROSS:
            return None if site.calls > 1 else self.told_length(site.whole, cut=False)
        return self._queries(site)

    def _cut_lengths(self) -> set[int]:
        """Lengths that only parts of streams have."""
        streams = self.plan.streams if self.ranks.sp > 1 else ()
        each = {self.local(stream) for stream in streams}
        return each | {sum(each)}

    # --- what is said ------------------------------------------------------------------------

    def after(self, wanted: list[torch.Size], got: list[torch.Size]) -> Iterator[Any]:
        """Say what of the plan the run did not come by, and whether the result has changed."""
        entries: tuple[Split | Gather, ...] = (*self.plan.splits, *self.plan.gathers)
        for entry in entries:
            is_optional = isinstance(entry, Split) and entry.optional
            if id(entry) not in self.met and not is_optional:
                what = f"`{entry.value}` of `{entry.module}` of `{self.plan.name}`"
                message = f"the run never came by {what}"
                yield "MD054", message, "leave it out, or correct its path"
        for path, number in self.calls.items():
            if number == 0:
                message = f"`{path}` of `{self.plan.name}` ran and called no attention"
                yield "MD055", message, "name the module that calls it, or leave the site out"
        if wanted != got:
            shown = f"`{list(map(tuple, got))}` and not `{list(map(tuple, wanted))}`"
            message = f"the result of `{self.plan.name}` has another shape under its plan"
            yield "MD054", message, f"{shown}: gather what is still cut"

    def failure(self, error: Exception) -> tuple[str, str, str]:
        """Say where the network failed."""
        path = self.path[-1] if self.path else ""
        message = f"`{path or self.plan.name}` of `{self.plan.name}` does not run as it is cut"
        text = " ".join(str(error).split())
        return "MD057", message, f"`{type(error).__name__}: {text:.120}`"

    def _missing(self, split: Split, path: str) -> tuple[str, str, str]:
        what = f"`{path or self.plan.name}` has no tensor `{split.value}` to cut"
        return "MD054", what, "write `optional=True` where it may be missing"

    def _misshapen(self, what: str, rank: int, value: torch.Tensor) -> tuple[str, str, str]:
        shape = tuple(value.shape)
        return "MD054", f"{what} has `{value.ndim}` dimensions, not `{rank}`", f"it is `{shape}`"

    def _unlike(
        self, what: str, entry: Split | Gather, told_and_got: tuple[int, torch.Tensor]
    ) -> tuple[str, str, str]:
        wanted, value = told_and_got
        streams = " and ".join(f"`{each}`" for each in entry.streams)
        message = f"{what} does not have `{wanted}` tokens of {streams} along `{entry.dim}`"
        return "MD054", message, f"it is `{tuple(value.shape)}`: correct the dimension or streams"


def _is_at(site: AttentionSite, path: str) -> bool:
    return is_below(path, site.module) and path.count(".") == site.module.count(".")


def _resized(value: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    shape = list(value.shape)
    shape[dim] = size
    return value.new_empty(shape)
