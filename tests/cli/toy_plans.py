"""Plans of networks that are not there, for the screen of `list models`."""

from __future__ import annotations

from stagemesh.spec.model_plan import ModelPlan, Split, TpRule, TpStyle


def plans() -> tuple[ModelPlan, ...]:
    """One that is cut by tokens and by width, and one that is not cut."""
    split = Split(module="", value="x", dim=1, streams=("img",))
    rule = TpRule(module="q", style=TpStyle.COLUMN)
    return (
        ModelPlan(name="ToyDenoiser", library="toys", family="toy", splits=(split,), tp=(rule,)),
        ModelPlan(name="ToyEncoder", library="toys", family="toy"),
    )
