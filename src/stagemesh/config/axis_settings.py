"""The axes of one stage out of the merged tree: which are on, and how large each is.

A size may be given in several forms, such as a ring degree and an all-gather degree. Each form is a
value of its own in every layer, and 1 says that it is not used; at most one may be above 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from stagemesh.config.merge import Branch, sourced, value_of
from stagemesh.config.place import Run
from stagemesh.config.settings import AxisSettings, Sourced
from stagemesh.spec.axis import ENABLED, SIZE, Axis, Owner
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.hooks import KernelSpec, LayerHookSpec
from stagemesh.spec.origin import Layer
from stagemesh.spec.patterns import Policy
from stagemesh.spec.unset import UNSET

FORMS: Final = "forms"
"""Member of an axis in the tree that holds its further forms of a size, by field."""


def axis_settings(
    stage: str, axes: Branch, declared: Mapping[str, Axis], run: Run
) -> dict[str, AxisSettings]:
    """Build the axes that are on; what the whole shows to be wrong goes to `run`."""
    found: dict[str, AxisSettings] = {}
    for name, node in axes.children.items():
        axis = declared[str(name)]
        assert isinstance(node, Branch)
        enabled = node.children.get(ENABLED)
        if isinstance(enabled, Sourced) and enabled.value is not False:
            found[axis.name] = _with_form(stage, axis, node, _settings(axis, node, enabled), run)
    return found


def _settings(axis: Axis, node: Branch, enabled: Sourced[object]) -> AxisSettings:
    label, options = node.children.get("label"), node.children.get("options")
    member = node.children.get
    return AxisSettings(
        axis=axis.name,
        size=cast("Sourced[int] | None", member(SIZE)),
        routing=cast("Sourced[Policy] | None", member("routing")),
        owner=cast("Sourced[Owner] | None", member("owner")),
        layer_hook_specs=cast(
            "Sourced[tuple[LayerHookSpec, ...]] | None", member("layer_hook_specs")
        ),
        kernel_specs=cast("Sourced[tuple[KernelSpec, ...]] | None", member("kernel_specs")),
        label=str(value_of(label)) if label is not None else axis.name,
        options=cast(
            "Mapping[str, Sourced[object]]", {} if options is None else sourced(options).parts
        ),
        origin=enabled.origin,
    )


# --- forms of a size ------------------------------------------------------------------------------


def _with_form(
    stage: str, axis: Axis, node: Branch, settings: AxisSettings, run: Run
) -> AxisSettings:
    """Take the size from the one form that is above 1, with the options that it stands for."""
    forms = node.children.get(FORMS)
    used = [
        (sets, given)
        for sets in axis.deploy_fields
        if isinstance(forms, Branch)
        and isinstance(given := forms.children.get(sets.name), Sourced)
        and isinstance(given.value, int)
        and given.value > 1
    ]
    if not used:
        return settings
    sets, given = used[0]
    rivals: list[_Form] = [(other.name, rival) for other, rival in used[1:]]
    if settings.size is not None and _is_chosen(settings.size):
        rivals.append((axis.field_for(SIZE) or SIZE, settings.size))
    for name, rival in rivals:
        run.findings.append(_two_forms(f"{stage}.{axis.name}", (sets.name, given), (name, rival)))
    implied = {name: _from(given, value) for name, value in sets.implies.items()}
    return dataclasses.replace(
        settings, size=_from(given, given.value), options={**settings.options, **implied}
    )


def _is_chosen(size: Sourced[Any]) -> bool:
    """Whether a size rules out another form; a 1 of a deploy file only says that it is not used."""
    return size.value is not UNSET and (size.value > 1 or size.origin.layer is Layer.STRATEGY)


def _from(given: Sourced[object], value: object) -> Sourced[Any]:
    return Sourced(value=value, origin=given.origin)


_Form: TypeAlias = tuple[str, Sourced[Any]]


def _two_forms(axis: str, form: _Form, rival: _Form) -> Diagnostic:
    """Say which two forms were chosen; what was typed wins over a strategy, with a warning."""
    (name, given), (other, size) = form, rival
    is_strategy = size.origin.layer is Layer.STRATEGY
    notes = (Note(message=f"`{other}` = `{size.value}` is set here", origin=size.origin),)
    if is_strategy and given.origin.layer.is_command_line:
        return Diagnostic(
            code="AX007",
            severity=Severity.WARNING,
            message=f"`{axis}.size` of the strategy, `{size.value}`, is replaced by `{name}`",
            origin=given.origin,
            notes=notes,
        )
    return Diagnostic(
        code="AX011",
        message=f"`{name}` = `{given.value}` is another form of `{axis}` than was chosen",
        origin=given.origin,
        notes=notes,
        help=f"keep `{name}` or `{other}`: they are two forms of one axis",
    )
