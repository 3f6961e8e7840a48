"""What others have declared about networks, as parts of a `ModelPlan`.

Read are `_cp_plan` and `_tp_plan` of `diffusers`, `base_model_tp_plan` of `transformers`, and
`_sp_plan` and `_hsdp_shard_conditions` of models written for them. None of these says along which
stream of tokens a tensor is cut, what attention sees, or which attributes count heads: that is
added by who imports them. What cannot be taken over is a diagnostic, never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NoReturn, Protocol, TypeAlias, runtime_checkable

from stagemesh.errors import DiagnosticError
from stagemesh.spec.diagnostic import Diagnostic, did_you_mean
from stagemesh.spec.frozen import frozen
from stagemesh.spec.model_plan import Gather, Split, TpRule, TpStyle
from stagemesh.spec.module_path import joined


@runtime_checkable
class _Input(Protocol):
    """How others say that a tensor is cut."""

    split_dim: int
    expected_dims: int | None
    split_output: bool


@runtime_checkable
class _PartialInput(_Input, Protocol):
    """A tensor whose front is kept whole."""

    text_len_source: str | int


@runtime_checkable
class _Output(Protocol):
    """How others say that an output is put together."""

    gather_dim: int
    expected_dims: int | None


@runtime_checkable
class _Packed(Protocol):
    """A style that cuts a linear layer block by block, as `diffusers` has them."""

    blocks: Sequence[int] | None


Streams: TypeAlias = Mapping[tuple[str, str | int], tuple[str, ...]]
"""Streams along each tensor, by its module and its parameter or output."""

ShardCondition: TypeAlias = Callable[[str, object], bool]
"""Whether a module is a unit of sharding, by its path and itself."""


@frozen
class TokenCuts:
    """Where tokens are cut and gathered."""

    splits: tuple[Split, ...]
    """Where they are cut."""
    gathers: tuple[Gather, ...]
    """Where they are put together again."""


def import_token_plan(name: str, plan: Mapping[str, object], streams: Streams) -> TokenCuts:
    """Take over a `_cp_plan` or `_sp_plan`: module to parameter or output to how it is cut.

    A tensor that `streams` does not name gets none, which the plan then lacks.
    """
    splits: list[Split] = []
    gathers: list[Gather] = []
    for module, said in plan.items():
        if isinstance(said, Mapping):
            for value, given in said.items():
                splits.append(_split(name, (module, value), given, streams))
        else:
            outputs = said if isinstance(said, list | tuple) else (said,)
            for index, output in enumerate(outputs):
                if output is not None:
                    gathers.append(_gather(name, (module, index), output, streams))
    return TokenCuts(splits=tuple(splits), gathers=tuple(gathers))


def _split(name: str, where: tuple[str, str | int], given: object, streams: Streams) -> Split:
    module, value = where
    each = given if isinstance(given, list | tuple) else (given,)
    first = each[0] if each else None
    if not isinstance(first, _Input) or any(other != first for other in each):
        _refuse(name, f"how `{value}` of `{module}` is cut", f"got `{given!r:.60}`")
    if isinstance(first, _PartialInput):
        _refuse(
            name,
            f"`{value}` of `{module}`, whose front is kept whole",
            "declare a joint site: the plan then says which stream is whole",
        )
    if first.split_output != isinstance(value, int):
        _refuse(
            name,
            f"`{value}` of `{module}`",
            "outputs have a number and `split_output`, parameters a name and not",
        )
    return Split(
        module=module,
        value=value,
        dim=first.split_dim,
        streams=streams.get(where, ()),
        rank=first.expected_dims,
    )


def _gather(name: str, where: tuple[str, int], given: object, streams: Streams) -> Gather:
    module, index = where
    if not isinstance(given, _Output):
        _refuse(name, f"how `{module}` is gathered", f"got `{given!r:.60}`")
    return Gather(
        module=module,
        dim=given.gather_dim,
        streams=streams.get(where, ()),
        value=index,
        rank=given.expected_dims,
    )


_STYLES: Final[Mapping[str, TpStyle]] = {"colwise": TpStyle.COLUMN, "rowwise": TpStyle.ROW}
_WHOLE: Final = "replicated_with_grad_allreduce"
"""A style that leaves a module whole, and says what training does with it."""
_PACKED: Final[Mapping[str, tuple[TpStyle, str]]] = {
    "PackedColwiseParallel": (TpStyle.COLUMN, "_tp_packed_col_blocks"),
    "PackedRowwiseParallel": (TpStyle.ROW, "_tp_packed_row_blocks"),
}
"""Classes of packed styles, and where the linear layer has its blocks when the style has none."""


def import_tp_plan(name: str, plan: Mapping[str, object], prefix: str = "") -> tuple[TpRule, ...]:
    """Take over a `_tp_plan` or `base_model_tp_plan`; `prefix` is where its network lies."""
    return tuple(
        _rule(name, joined(prefix, module), style)
        for module, style in plan.items()
        if style != _WHOLE
    )


def _rule(name: str, module: str, style: object) -> TpRule:
    if isinstance(style, str):
        if style not in _STYLES:
            _refuse(name, f"style `{style}` of `{module}`", did_you_mean(style, _STYLES))
        return TpRule(module=module, style=_STYLES[style])
    kind = type(style).__name__
    if not isinstance(style, _Packed) or kind not in _PACKED:
        _refuse(name, f"style `{style!r:.60}` of `{module}`", did_you_mean(kind, _PACKED))
    ours, attribute = _PACKED[kind]
    inside = module.rpartition("*.")[2]
    blocks = tuple(style.blocks) if style.blocks else (joined(inside, attribute),)
    return TpRule(module=module, style=ours, blocks=blocks)


def import_shard_conditions(
    name: str, conditions: Iterable[ShardCondition], modules: Iterable[tuple[str, object]]
) -> tuple[str, ...]:
    """Take over `_hsdp_shard_conditions`: the lists whose items they choose among `modules`.

    Items of lists inside of other chosen modules are left to these, or every single layer would be
    gathered on its own.
    """
    asked = tuple(conditions)
    chosen = [path for path, module in modules if any(holds(path, module) for holds in asked)]
    lists = dict.fromkeys(path.rpartition(".")[0] for path in chosen if _is_item(path))
    outer = tuple(
        path for path in lists if not any(path.startswith(f"{other}.") for other in chosen)
    )
    if not outer:
        _refuse(
            name,
            "shard conditions that no item of a list of modules meets",
            "let them hold for the blocks, such as `blocks.0`",
        )
    return outer


def _is_item(path: str) -> bool:
    parent, _, last = path.rpartition(".")
    return bool(parent) and last.isdigit()


def _refuse(name: str, what: str, help_text: str) -> NoReturn:
    raise DiagnosticError(
        [
            Diagnostic(
                code="MD049",
                message=f"the plan of `{name}` cannot be taken over: {what}",
                help=help_text,
            )
        ]
    )
