"""Names that a pipeline gives to a field of one of its stages, in the entries of its stages."""

from __future__ import annotations

from collections.abc import Mapping

from stagemesh.config.place import Place, Run
from stagemesh.config.tree import quoted
from stagemesh.spec.diagnostic import Diagnostic, Severity
from stagemesh.spec.pipeline import StagePipelineConfig


def under_own_names(
    entry: Mapping[str | int, object],
    place: Place,
    stage: StagePipelineConfig | None,
    aliases: Mapping[str, tuple[str, str]],
    run: Run,
) -> Mapping[str | int, object]:
    """Put the field that each alias of the pipeline means in its place."""
    meant = {name: value for name, value in entry.items() if name not in aliases}
    if stage is None:  # it may have been any
        return meant
    for name in (each for each in entry if each in aliases):
        owner, field = aliases[str(name)]
        here = place.child(name)
        if stage.model_stage != owner:
            message = f"{here.name} means `{owner}.{field}`, and stands at another stage"
            run.tell("CF063", message, here.key_origin, f"move it to `{owner}`")
        elif field not in entry:
            meant[field] = entry[name]
        elif entry[field] != entry[name]:
            own = quoted(entry[field])
            run.findings.append(
                Diagnostic(
                    code="CF064",
                    severity=Severity.WARNING,
                    message=f"{here.name}, {quoted(entry[name])}, is replaced by `{field}`, {own}",
                    origin=place.child(field).origin,
                    help=f"`{name}` means `{owner}.{field}`; leave one of them out",
                )
            )
    return meant


def written_as(
    entry: Mapping[str | int, object],
    stage: StagePipelineConfig | None,
    aliases: Mapping[str, tuple[str, str]],
) -> Mapping[str, str]:
    """Return the name by which an entry says a field, where that is another one."""
    return {
        field: name
        for name, (owner, field) in aliases.items()
        if stage is not None and stage.model_stage == owner and name in entry and field not in entry
    }
