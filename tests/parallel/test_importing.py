"""Declarations of others become parts of a plan, or a diagnostic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from stagemesh.errors import DiagnosticError
from stagemesh.parallel.importing import (
    import_shard_conditions,
    import_token_plan,
    import_tp_plan,
)
from stagemesh.spec.model_plan import Gather, Split, TpRule, TpStyle


@dataclass(frozen=True)
class Input:
    """As `ContextParallelInput` and `SequenceParallelInput` are."""

    split_dim: int
    expected_dims: int | None = None
    split_output: bool = False


@dataclass(frozen=True)
class PartialInput:
    """As `SequenceParallelPartialInput` is."""

    split_dim: int
    text_len_source: str | int
    expected_dims: int | None = None
    split_output: bool = False


@dataclass(frozen=True)
class Output:
    """As `ContextParallelOutput` and `SequenceParallelOutput` are."""

    gather_dim: int
    expected_dims: int | None = None


class PackedColwiseParallel:
    """As `diffusers` has it."""

    def __init__(self, blocks: list[int] | None = None) -> None:
        """Keep the shares."""
        self.blocks = blocks


IMG: Final = ("img",)


def test_the_patterns_of_a_sequence_plan_become_splits_and_gathers() -> None:
    """A first block, outputs of rotary tables, and an output layer."""
    plan = {
        "rope": {0: Input(1, 4, split_output=True), 1: [Input(1, 4, split_output=True)]},
        "blocks.0": {"hidden_states": Input(1, 3), "masks": [Input(1), Input(1)]},
        "proj_out": Output(1, 3),
        "heads": [None, Output(2)],
    }
    cuts = import_token_plan("Net", plan, {("rope", 0): IMG, ("proj_out", 0): IMG})
    assert cuts.splits == (
        Split(module="rope", value=0, dim=1, streams=IMG, rank=4),
        Split(module="rope", value=1, dim=1, streams=(), rank=4),
        Split(module="blocks.0", value="hidden_states", dim=1, streams=(), rank=3),
        Split(module="blocks.0", value="masks", dim=1, streams=()),
    )
    assert cuts.gathers == (
        Gather(module="proj_out", dim=1, streams=IMG, rank=3),
        Gather(module="heads", dim=2, streams=(), value=1),
    )


def test_styles_become_rules() -> None:
    """Packed ones have their shares, or the attribute of the linear layer that holds its blocks."""
    plan = {
        "layers.*.q": "colwise",
        "layers.*.o": "rowwise",
        "layers.*.q_norm": "replicated_with_grad_allreduce",
        "layers.*.mlp.up": PackedColwiseParallel([1, 1]),
        "layers.*.mlp.in": PackedColwiseParallel(),
    }
    assert import_tp_plan("Net", plan, "model") == (
        TpRule(module="model.layers.*.q", style=TpStyle.COLUMN),
        TpRule(module="model.layers.*.o", style=TpStyle.ROW),
        TpRule(module="model.layers.*.mlp.up", style=TpStyle.COLUMN, blocks=(1, 1)),
        TpRule(
            module="model.layers.*.mlp.in",
            style=TpStyle.COLUMN,
            blocks=("mlp.in._tp_packed_col_blocks",),
        ),
    )


def test_shard_conditions_become_the_outer_lists() -> None:
    """The usual condition holds for lists inside of blocks as well; these are left out."""
    paths = ("", "blocks", "blocks.0", "blocks.0.attn.to_out.0", "single_blocks.3", "proj.2")
    modules = [(path, object()) for path in paths]

    def is_block(path: str, _module: object) -> bool:
        return "blocks" in path and path.rpartition(".")[2].isdigit()

    found = import_shard_conditions("Net", [is_block], modules)
    assert found == ("blocks", "single_blocks")


@pytest.mark.parametrize(
    ("run", "what", "help_text"),
    [
        (
            lambda: import_token_plan("Net", {"a": {"x": Output(1)}}, {}),
            "how `x` of `a` is cut",
            "got `Output(gather_dim=1, expected_dims=None)`",
        ),
        (
            lambda: import_token_plan("Net", {"a": {"x": [Input(1), Input(2)]}}, {}),
            "how `x` of `a` is cut",
            "got `[Input(split_dim=1, expected_dims=None, split_output=False),`",
        ),
        (
            lambda: import_token_plan("Net", {"a": {"x": []}}, {}),
            "how `x` of `a` is cut",
            "got `[]`",
        ),
        (
            lambda: import_token_plan("Net", {"a": {0: Input(1)}}, {}),
            "`0` of `a`",
            "outputs have a number and `split_output`, parameters a name and not",
        ),
        (
            lambda: import_token_plan("Net", {"a": {"x": PartialInput(1, "text")}}, {}),
            "`x` of `a`, whose front is kept whole",
            "declare a joint site: the plan then says which stream is whole",
        ),
        (
            lambda: import_token_plan("Net", {"a": Input(1)}, {}),
            "how `a` is gathered",
            "got `Input(split_dim=1, expected_dims=None, split_output=False)`",
        ),
        (
            lambda: import_tp_plan("Net", {"q": "colwize"}),
            "style `colwize` of `q`",
            "did you mean `colwise`? allowed here: `colwise`, `rowwise`",
        ),
        (
            lambda: import_tp_plan("Net", {"q": 3}),
            "style `3` of `q`",
            "allowed here: `PackedColwiseParallel`, `PackedRowwiseParallel`",
        ),
        (
            lambda: import_shard_conditions("Net", [], [("blocks.0", object())]),
            "shard conditions that no item of a list of modules meets",
            "let them hold for the blocks, such as `blocks.0`",
        ),
    ],
)
def test_what_cannot_be_taken_over_is_told(
    run: Callable[[], Any], what: str, help_text: str
) -> None:
    """Nothing is left out in silence."""
    with pytest.raises(DiagnosticError) as caught:
        run()
    [found] = caught.value.diagnostics
    message = f"the plan of `Net` cannot be taken over: {what}"
    assert (found.code, found.message, found.help) == ("MD049", message, help_text)
