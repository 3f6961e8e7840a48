"""Hooks and kernels that an entry asks for: bound, shown, saved, and never bound in two ways."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from stagemesh.config.inputs import PlanInputs
from stagemesh.plan.details import details_text
from stagemesh.plan.make import make
from stagemesh.plan.save import to_json
from stagemesh.plan.saved import open_saved
from stagemesh.plan.values import BindingPlan, Plan
from tests.plan.saving import CATALOG, HOST

HOOK: Final = {"hook_id": "norm", "target": "*.attn", "category": "attention_pre", "priority": 2}
KERNEL: Final = {
    "kernel_id": "reduce",
    "target": "*.mlp",
    "category": "linear",
    "group_axis": "tp",
    "requires_collective": True,
}


def attempt(folder: Path, *stack: dict[str, object]) -> tuple[Plan | None, list[str]]:
    """Plan two stages, the first under a stack."""
    (folder / "config.json").write_text("{}", encoding="utf-8")
    made = make(
        PlanInputs(
            model=str(folder),
            deploy_config={"pipeline": "toy"},
            strategy_config={"strategies": {"thinker": list(stack)}},
        ),
        HOST,
        CATALOG,
    )
    return made.plan, [f"{found.code} {found.message}" for found in made.diagnostics]


def tp(size: object = 2, **bindings: object) -> dict[str, object]:
    """An entry of tensor parallelism."""
    return {"axis": "tp", "size": size, **bindings}


def planned(folder: Path, *stack: dict[str, object]) -> Plan:
    """Plan what must succeed."""
    plan, found = attempt(folder, *stack)
    assert plan is not None, found
    return plan


def test_what_an_entry_asks_for_is_bound_in_the_order_of_the_walker(tmp_path: Path) -> None:
    """Linear layers before attention; the group of a kernel is kept; size 1 binds it as well."""
    for size in (1, 2):
        plan = planned(tmp_path, tp(size, layer_hook_specs=[HOOK], kernel_specs=[KERNEL]))
        assert plan.stages[0].bindings == (
            BindingPlan(
                kind="kernel",
                name="reduce",
                target="*.mlp",
                category="linear",
                priority=0,
                axis="tp",
                group_axis="tp",
                requires_collective=True,
            ),
            BindingPlan(
                kind="hook",
                name="norm",
                target="*.attn",
                category="attention_pre",
                priority=2,
                axis="tp",
            ),
        )


def test_a_plan_shows_bindings_and_says_that_nobody_binds_them_yet(tmp_path: Path) -> None:
    """Nothing that was asked for is silently left out."""
    plan = planned(tmp_path, tp(layer_hook_specs=[HOOK], kernel_specs=[KERNEL]))
    text = details_text(plan)
    assert "bindings  thinker tp  kernel reduce  *.mlp   linear 0\n" in text
    assert "          thinker tp  hook norm      *.attn  attention_pre 2\n" in text
    assert "axes.tp.kernel_specs = {kernel_id: reduce" in text
    assert plan.not_runnable == (
        "`thinker`: engine `toy` does not bind `norm` of `tp` yet",
        "`thinker`: engine `toy` does not bind `reduce` of `tp` yet",
    )


@pytest.mark.parametrize("bindings", [{}, {"layer_hook_specs": [HOOK]}, {"kernel_specs": [KERNEL]}])
def test_bindings_survive_saving(tmp_path: Path, bindings: dict[str, object]) -> None:
    """A saved plan is planned again, with what its entries asked for."""
    plan = planned(tmp_path, tp(**bindings), {"axis": "dp", "size": 2, "routing": "hash"})
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan), encoding="utf-8")
    assert open_saved(file, HOST, CATALOG).diagnostics == ()
    assert open_saved(file, HOST, CATALOG).plan == plan


def test_one_place_is_bound_once(tmp_path: Path) -> None:
    """Equal category, target and priority have no order: in one axis or in two."""
    same = {**HOOK, "hook_id": "other"}
    plan, found = attempt(tmp_path, tp(layer_hook_specs=[HOOK, same]))
    assert (plan, found) == (None, ["AX023 `tp` binds `*.attn` twice"])
    _, found = attempt(
        tmp_path,
        tp(layer_hook_specs=[HOOK]),
        {"axis": "dp", "size": 2, "layer_hook_specs": [same]},
    )
    assert found == ["AX023 `dp` and `tp` both bind `*.attn`"]
    later = {**same, "priority": 3}
    assert attempt(tmp_path, tp(layer_hook_specs=[HOOK, later]))[1] == []


def test_a_kernel_needs_the_group_that_it_runs_over(tmp_path: Path) -> None:
    """An axis that is not stacked has none."""
    elsewhere = {**KERNEL, "group_axis": "dp"}
    plan, found = attempt(tmp_path, tp(kernel_specs=[elsewhere]))
    assert plan is None
    assert found == ["AX052 kernel `reduce` of `tp` needs the group of `dp` on `thinker`"]


@pytest.mark.parametrize(
    ("bindings", "code", "path"),
    [
        ({"kernel_specs": [KERNEL, {**KERNEL, "group_axis": "pp"}]}, "AX052", "kernel_specs[1]"),
        ({"layer_hook_specs": [HOOK, HOOK]}, "AX023", "layer_hook_specs[1]"),
    ],
)
def test_a_binding_at_fault_is_told_at_itself(
    tmp_path: Path, bindings: dict[str, object], code: str, path: str
) -> None:
    """Rather than at the entry that lists it among others."""
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    made = make(
        PlanInputs(
            model=str(tmp_path),
            deploy_config={"pipeline": "toy"},
            strategy_config={"strategies": {"thinker": [tp(**bindings)]}},
        ),
        HOST,
        CATALOG,
    )
    found = [each.origin for each in made.diagnostics if each.code == code]
    assert [origin.path for origin in found if origin is not None] == [
        f"strategies.thinker[0].{path}"
    ]
