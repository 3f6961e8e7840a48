"""`make plans`: write what libraries declare, `imported.json`, and what plans cut, `parts.json`."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from stagemesh.models._diffusers.plans.imported import FILE
from stagemesh.models._diffusers.plans.lookup import all_plans
from stagemesh.models._diffusers.plans.parts import FILE as PARTS
from stagemesh.parallel.importing import import_token_plan, import_tp_plan
from stagemesh.spec.model_plan import ModelPlan
from stagemesh.spec.plan_json import to_json
from stagemesh.spec.vae_plan import VaePlan

_DENOISERS: Final = (
    "FluxTransformer2DModel",
    "Flux2Transformer2DModel",
    "QwenImageTransformer2DModel",
    "WanTransformer3DModel",
    "LTXVideoTransformer3DModel",
)
"""Classes of `diffusers` that are shipped here and declare `_cp_plan` or `_tp_plan`."""
_CONFIGS: Final = {
    "Qwen2_5_VLForConditionalGeneration": ("Qwen2_5_VLTextConfig", "model.language_model"),
    "Mistral3ForConditionalGeneration": ("MistralConfig", "model.language_model"),
    "Qwen3Model": ("Qwen3Config", ""),
    "LlamaModel": ("LlamaConfig", ""),
}
"""Classes of `transformers` whose configuration has a `base_model_tp_plan`, and where the network
lies that it is about."""


def imported_plans() -> Iterator[ModelPlan]:
    """Read every plan, in a fixed order."""
    diffusers = importlib.import_module("diffusers")
    for name in _DENOISERS:
        kind: Any = getattr(diffusers, name)
        cuts = import_token_plan(name, kind._cp_plan or {}, {})  # noqa: SLF001  that is its name
        yield ModelPlan(
            name=name,
            library="diffusers",
            family="imported",
            splits=cuts.splits,
            gathers=cuts.gathers,
            tp=import_tp_plan(name, kind._tp_plan or {}),  # noqa: SLF001  see above
        )
    transformers = importlib.import_module("transformers")
    for name, (config, prefix) in _CONFIGS.items():
        plan: Mapping[str, object] = getattr(transformers, config).base_model_tp_plan
        tp = import_tp_plan(name, plan, prefix)
        yield ModelPlan(name=name, library="transformers", family="imported", tp=tp)


def text() -> str:
    """Return the generated file as it should be now, one line for each entry."""
    plans = ",\n".join(_lines(to_json(plan)) for plan in imported_plans())
    return f'{{"plans": [\n{plans}\n]}}\n'


def _lines(plan: Mapping[str, Any]) -> str:
    written = ",\n  ".join(f"{json.dumps(key)}: {_value(value)}" for key, value in plan.items())
    return f"{{ {written} }}"


def _value(value: object) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    entries = ",\n    ".join(json.dumps(entry) for entry in value)
    return f"[\n    {entries}\n  ]"


def parts_text() -> str:
    """Return the file with what every plan cuts, one line for each."""
    lines = ",\n".join(f"{json.dumps(plan.name)}: {json.dumps(_cut(plan))}" for plan in all_plans())
    return f"{{\n{lines}\n}}\n"


def _cut(plan: ModelPlan | VaePlan) -> dict[str, object]:
    limits = plan.limits if isinstance(plan, ModelPlan) else ()
    parts = sorted(part.value for part in plan.parts)
    return {"parts": parts, "limits": [to_json(limit) for limit in limits]}


def main() -> int:
    """Write both files, or say with `--check` whether they are current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a file is not current")
    is_check = parser.parse_args().check
    for file, made in ((FILE, text), (PARTS, parts_text)):
        if not is_check:
            file.write_text(made(), encoding="utf-8")
        elif file.read_text(encoding="utf-8") != made():
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
