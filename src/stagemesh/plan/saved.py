"""A saved plan, read and held against the checkpoint, the machine and what is installed.

Its decisions are planned again. What was edited is so checked like any other input; what does not
follow from the rest, such as the members of a group or the reference of a loader, must be what
planning gives now. The record of where values came from is taken as it is, as far as it is about
what the plan has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.environment import check_environment
from stagemesh.config.host import Host
from stagemesh.config.load import Loaded, load
from stagemesh.config.opened import MAX_PLAN_BYTES, OpenedFile, open_file
from stagemesh.config.plain import plain_fields
from stagemesh.config.tree import Path as ValuePath
from stagemesh.config.tree import path_text, quoted
from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.devices import Devices
from stagemesh.plan.make import Made
from stagemesh.plan.recorded import misrecorded
from stagemesh.plan.restate import restated
from stagemesh.plan.save import from_json
from stagemesh.plan.values import Plan
from stagemesh.spec.diagnostic import Diagnostic, Note, counted
from stagemesh.spec.origin import Layer, Origin

_AGAIN: Final = "plan again with `stagemesh plan`"


def open_saved(file: Path | OpenedFile, host: Host | None, catalog: Catalog | None = None) -> Made:
    """Read the plan in `file`; what speaks against running it here is told at once.

    Without a `host` nothing is said about this machine: only whether the plan is still right.
    """
    malformed = check_environment()
    if malformed:
        return _refused(*malformed)
    plan = read_plan(file if isinstance(file, OpenedFile) else open_file(file, is_plan=True))
    if not isinstance(plan, Plan):
        return _refused(*plan)
    origin = Origin(layer=Layer.GLOBAL, source=str(file))
    catalog = Catalog.installed() if catalog is None else catalog
    found = [] if host is None else list(_other_host(plan, host, origin))
    loaded = None
    if Path(plan.checkpoint.path).is_absolute():
        loaded = load(restated(plan, catalog), catalog)
        found += _at(origin, _differences(plan, loaded, catalog))
    else:
        message = f"the checkpoint {quoted(plan.checkpoint.path)} of the plan is no absolute path"
        found.append(Diagnostic(code="PL046", message=message, origin=origin, help=_AGAIN))
    if found:  # what was loaded now is not what the file tells of, and no answer comes from it
        return _refused(*found)
    return Made(plan=plan, diagnostics=(), documents=(), loaded=loaded, saved=str(file))


def read_plan(opened: OpenedFile) -> Plan | tuple[Diagnostic, ...]:
    """Read what a file holds as a plan, whatever may speak against running it."""
    problem, text = opened.problem, ""
    if len(opened.content) > MAX_PLAN_BYTES:
        problem = f"it is larger than `{MAX_PLAN_BYTES}` bytes"
    try:
        text = opened.content.decode()
    except UnicodeDecodeError:
        problem = "it is no text"
    if problem is None:
        return from_json(text, opened.name)
    message = f"the saved plan `{opened.name}` cannot be read: {problem}"
    return (Diagnostic(code="PL048", message=message),)


def _refused(*found: Diagnostic) -> Made:
    return Made(plan=None, diagnostics=found, documents=())


def _at(origin: Origin, found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Place findings about the restated plan where it stands: in its file."""
    for each in found:
        notes = tuple(Note(message=note.message) for note in each.notes)
        inside = each.origin is not None and each.origin.layer is Layer.PIPELINE
        yield replace(each, origin=each.origin if inside else origin, notes=notes)


def _other_host(plan: Plan, host: Host, origin: Origin) -> Iterator[Diagnostic]:
    devices = plan.devices
    needed = (devices.memory_bytes or 0) * devices.count
    if devices.imaginary:
        return  # the plan says itself that it cannot be run
    if devices.kind != host.kind:
        code = "PL043"
        message = f"the plan is for {quoted(devices.kind)} devices, and this host has `{host.kind}`"
    elif host.count is not None and devices.count > host.count:
        code = "PL044"
        uses = counted(devices.count, "device")
        message = f"the plan uses {uses}, and this host has `{host.count}`"
    elif devices.ids != host.ids[: devices.count]:
        code = "PL114"
        message = f"the plan is for {_listed(devices.ids)}, and visible are {_listed(host.ids)}"
    elif host.count is None and host.memory_bytes is not None and needed > host.memory_bytes:
        code = "PL045"
        message = "this host has less memory than the one that the plan was made for"
    else:
        return
    yield Diagnostic(code=code, message=message, origin=origin, help=_AGAIN)


def _listed(ids: tuple[str, ...]) -> str:
    return f"the devices {quoted(','.join(ids))}" if ids else "devices without names"


def _differences(plan: Plan, loaded: Loaded, catalog: Catalog) -> Iterable[Diagnostic]:
    """Plan again from what was loaded, and say what comes out differently."""
    checkpoint = loaded.checkpoint
    if checkpoint is not None and checkpoint.config_hash != plan.checkpoint.config_hash:
        message = f"the checkpoint `{checkpoint.path}` has changed since the plan was made"
        return [Diagnostic(code="PL042", message=message, help=_AGAIN)]
    if (
        checkpoint is None
        or loaded.pipeline is None
        or loaded.settings is None
        or any(each.is_error for each in loaded.diagnostics)
    ):
        return loaded.diagnostics
    request = PlanRequest(
        pipeline=loaded.pipeline,
        settings=loaded.settings,
        checkpoint=plan.checkpoint,
        facts=checkpoint.facts,
        skipped=checkpoint.skipped,
        devices=Devices(
            kind=plan.devices.kind,
            count=plan.devices.count,
            memory_bytes=plan.devices.memory_bytes,
            imaginary=plan.devices.imaginary,
            ids=plan.devices.ids,
        ),
        placed={
            stage.stage_id: tuple(
                tuple(rank.device for rank in replica.ranks) for replica in stage.replicas
            )
            for stage in plan.stages
        },
    )
    again = build(request, catalog)
    return again.diagnostics if again.plan is None else _edited(plan, again.plan)


def _edited(plan: Plan, again: Plan) -> Iterator[Diagnostic]:
    """Tell the first difference of each stage, each edge and each value beside them."""
    told: set[ValuePath] = set()
    for path, old, new in _leaves(_decisions(plan), _decisions(again)):
        element = path[:2] if path[0] in ("stages", "edges") else path[:1]
        if element not in told:
            told.add(element)
            yield _edit(path, f"the plan says {quoted(old)}, and planning gives {quoted(new)}")
    for index, stage in enumerate(plan.stages):
        wrong = next(misrecorded(stage), None)
        if wrong is not None and ("stages", index) not in told:
            yield _edit(("stages", index, "values", wrong[0]), wrong[1])


def _edit(path: ValuePath, why: str) -> Diagnostic:
    return Diagnostic(
        code="PL047",
        message=f"{quoted(path_text(path), 60)} is not what planning gives now",
        notes=(Note(message=why),),
        help=_AGAIN,
    )


def _decisions(plan: Plan) -> dict[str, object]:
    """The plan without the record of where its values came from."""
    stages = tuple(replace(stage, values={}) for stage in plan.stages)
    return plain_fields(replace(plan, stages=stages, values={}))


def _leaves(
    old: object, new: object, path: ValuePath = ()
) -> Iterator[tuple[ValuePath, object, object]]:
    """Walk two values as far as they have the same shape; yield where they differ."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() == new.keys():
        for key, value in old.items():
            yield from _leaves(value, new[key], (*path, key))
    elif isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        for index, value in enumerate(old):
            yield from _leaves(value, new[index], (*path, index))
    elif old != new:
        yield path, old, new
